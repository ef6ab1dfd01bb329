# The server in two stages: the first installs what requirements.txt pins by hash, the second only runs it.
# A tag can move: --build-arg PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:… builds on one image for good.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements.txt ./
RUN python -m venv /opt/runwire \
    && /opt/runwire/bin/python -m pip install --require-hashes -r requirements.txt
COPY pyproject.toml setup.py README.md LICENSE runwire.py ./
COPY app ./app
RUN /opt/runwire/bin/python -m pip install --no-deps --no-build-isolation .

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Runwire" \
      org.opencontainers.image.description="A server that runs LLM agents for other programs over plain HTTP" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The volume is made for the user below, so that a new named volume is writable for it.
RUN install -d -o 10001 -g 10001 -m 0700 /data
COPY --from=build /opt/runwire /opt/runwire
# 0.0.0.0 needs RUNWIRE_API_KEYS (key:tenant, a key has 16 or more characters): without it the server refuses to start.
# Nothing outside /data is written, so the root file system may be read-only.
ENV PATH=/opt/runwire/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    RUNWIRE_HOST=0.0.0.0 \
    RUNWIRE_PORT=8080 \
    RUNWIRE_DATABASE_URL=sqlite:////data/runwire.db
WORKDIR /data
VOLUME /data
EXPOSE 8080
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:' + os.environ['RUNWIRE_PORT'] + '/livez', timeout=4)"]
# Exec form: the server is process 1 and gets the signals itself. It starts no processes, so nobody has to reap any.
STOPSIGNAL SIGTERM
ENTRYPOINT ["runwire"]
CMD ["serve"]
