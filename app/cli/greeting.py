"""What `runwire serve --demo` shows when it is up: one real run, posted to itself over HTTP, as its stream comes."""

import httpx

DEMO_INPUT = "What is (2 + 3) * 7, and how long is 'hello world'?"


async def show_demo(url: str) -> None:
    """Post one run and print its stream. A failure is printed, not raised: the server goes on serving."""
    print(
        f"\nThe demo agent needs no model: it follows simple rules. One run, posted over HTTP:\n  {DEMO_INPUT}\n",
        flush=True,
    )
    body = {"agent": "demo", "input": DEMO_INPUT}
    try:
        async with (
            httpx.AsyncClient(trust_env=False, timeout=30) as client,
            client.stream("POST", f"{url}/runs/stream", json=body) as response,
        ):
            async for line in response.aiter_lines():
                print(f"  {line}", flush=True)
    except httpx.HTTPError as error:
        print(f"  (the demo run failed: {error})", flush=True)
    print(
        "Try it yourself:\n"
        f'  curl -N {url}/runs/stream --json \'{{"agent":"demo","input":"What is 2+3?"}}\'\n'
        "Ctrl-C stops the server.",
        flush=True,
    )
