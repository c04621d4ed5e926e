"""Serve a release over HTTP, with the standard library alone.

    python serve.py my-run/release [PORT]

POST /predict takes {"features": [[...], ...], "places": [[...], ...]}: the features of every new node, as in
the training data, and the places that it lists; "weights" in the same form where the run has weights, and
both by the name of the relation where it has several. The answer has "predictions", a row of probabilities
(or a number) for each, and "unknown", how many of its places are not on the board. GET /about has the
guarantee and what it assumes.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

import hushgraph as hg

LARGEST_REQUEST = 16 << 20


def make_server(release: str, port: int = 8000, host: str = "127.0.0.1") -> ThreadingHTTPServer:
    """A server for one release; threads share its boards. Port 0 is any free one."""
    run = hg.Run.load(release, device="cpu")
    about = {"epsilon": run.epsilon, "delta": run.delta, "guarantee": run.result["guarantee"]}
    about["assumptions"] = [each["sentence"] for each in run.result["assumptions"]]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(200, about) if self.path == "/about" else self.answer(404, {"error": "GET /about"})

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            if self.path != "/predict" or size > LARGEST_REQUEST:
                self.answer(404, {"error": f"POST /predict with at most {LARGEST_REQUEST} bytes"})
                return
            try:
                asked = json.loads(self.rfile.read(size))
                features = np.asarray(asked["features"], np.float32)
                predictions, unknown = run.predict_new(
                    features, asked["places"], weights=asked.get("weights")
                )
            except KeyError as error:
                self.answer(400, {"error": f"{error} is missing; expected features and places"})
                return
            except (hg.InputError, TypeError, ValueError) as error:
                self.answer(400, {"error": str(error)})
                return
            self.answer(200, {"predictions": predictions.tolist(), "unknown": unknown.tolist()})

        def answer(self, code: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Who asked about whom is not written down."""

    return ThreadingHTTPServer((host, port), Handler)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    make_server(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8000, "0.0.0.0").serve_forever()
