# The server in two stages: the first installs what requirements.txt pins by hash, the second only runs it.
FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements.txt ./
RUN python -m venv /opt/runwire \
    && /opt/runwire/bin/python -m pip install --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE runwire.py ./
COPY app ./app
RUN /opt/runwire/bin/python -m pip install --no-deps --no-build-isolation .

FROM python:3.11-slim-bookworm
# The volume is made for the user below, so that a new named volume is writable for it.
RUN install -d -o 10001 -g 10001 -m 0700 /data
COPY --from=build /opt/runwire /opt/runwire
# 0.0.0.0 needs RUNWIRE_API_KEYS (key:tenant, a key has 16 or more characters): without it the server refuses to start.
ENV PATH=/opt/runwire/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    RUNWIRE_HOST=0.0.0.0 \
    RUNWIRE_PORT=8080 \
    RUNWIRE_DATABASE_URL=sqlite:////data/runwire.db
WORKDIR /data
VOLUME /data
EXPOSE 8080
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:' + os.environ['RUNWIRE_PORT'] + '/livez', timeout=4)"]
# Exec form: the server is process 1 and gets the signals itself.
ENTRYPOINT ["runwire"]
CMD ["serve"]
