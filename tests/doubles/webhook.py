#!/usr/bin/env python3
"""A service that takes notifications on a loopback port, and fails as a plan says.

usage: webhook.py DIR [CERTIFICATE KEY]     writes DIR/port when it listens, and a line of JSON for each request to DIR/log

With a certificate it speaks https. DIR/plan holds the answers of the next requests, a line each; after them the answer is 200.
    STATUS [SECONDS]    500, 404, …; SECONDS: the header Retry-After
    hang                no answer until the other end gives up
    drop                the connection ends in place of an answer
A request is logged before it is answered.
"""
import http.server
import json
import os
import ssl
import sys
import threading

folder = sys.argv[1]
lock = threading.Lock()


def next_answer():
    with lock:
        path = os.path.join(folder, "plan")
        lines = open(path).read().split("\n") if os.path.exists(path) else []
        lines = [line for line in lines if line]
        if not lines:
            return ["200"]
        with open(path, "w") as out:
            out.write("".join(line + "\n" for line in lines[1:]))
        return lines[0].split()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = next_answer()
        with lock, open(os.path.join(folder, "log"), "a") as log:
            line = {"path": self.path, "authorization": self.headers.get("Authorization"), "type": self.headers.get("Content-Type"),
                    "answer": answer[0], "body": json.loads(body)}
            log.write(json.dumps(line) + "\n")
        if answer[0] == "hang":
            self.rfile.read(1)
            return
        if answer[0] == "drop":
            return
        self.send_response(int(answer[0]))
        if len(answer) > 1:
            self.send_header("Retry-After", answer[1])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass  # the other end has gone


server = Server(("127.0.0.1", 0), Handler)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
with open(os.path.join(folder, "port.new"), "w") as out:
    out.write(str(server.server_address[1]))
os.rename(os.path.join(folder, "port.new"), os.path.join(folder, "port"))
server.serve_forever()
