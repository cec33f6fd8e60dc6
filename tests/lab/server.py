#!/usr/bin/env python3
"""The lab's image server: static files over HTTP/1.1, request counts, and faults on demand.

  server.py DIR ADDRESS:PORT

Files have Content-Length, ETag and Last-Modified, and answer HEAD, Range and If-Range.

  GET  /_stats    {"/path": {"requests": 2, "heads": 0, "bytes": 123, "ranges": ["bytes=100-"]}}
  GET  /_client   the address that asks
  POST /_reset    forget those counts, and those of /first/

Prefixes, which may follow each other, spoil a file's delivery:

  /slow/RATE/f      RATE bytes a second
  /truncate/N/f     the connection closes after N bytes of the body
  /reset/N/f        the same, but by a TCP reset
  /stall/N/f        nothing more comes after N bytes; the connection stays open
  /status/CODE/f    that status and a short page
  /html/f           status 200 and an HTML page instead of the file
  /chunked/f        chunked transfer, no length, no ranges
  /close/f          no length either; the end of the connection is the end of the file
  /redirect/f       302 to /f
  /noetag/f         neither ETag nor Last-Modified
  /norange/f        ranges are ignored: always the whole file
  /first/K/f        the prefixes that follow count for the first K requests of this path only
"""
import json
import os
import socket
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

BLOCK = 1 << 20
WITH_NUMBER = {"slow", "truncate", "reset", "stall", "status", "first"}
WITHOUT = {"html", "chunked", "close", "redirect", "noetag", "norange"}


class Counts:
    """What was asked for and sent, by request path."""

    def __init__(self):
        self.lock = threading.Lock()
        self.paths = {}
        self.seen = {}

    def reset(self):
        with self.lock:
            self.paths.clear()
            self.seen.clear()

    def add(self, path, **increments):
        with self.lock:
            entry = self.paths.setdefault(path, {"requests": 0, "heads": 0, "bytes": 0, "ranges": []})
            for key, value in increments.items():
                entry[key] = entry[key] + value

    def visits(self, path):
        """How many requests of `path` came before this one."""
        with self.lock:
            self.seen[path] = self.seen.get(path, 0) + 1
            return self.seen[path] - 1

    def as_json(self):
        with self.lock:
            return json.dumps(self.paths, indent=1, sort_keys=True).encode()


COUNTS = Counts()


class Faults:
    """The fault prefixes of one request path, and the file that remains."""

    def __init__(self, path):
        parts = path.lstrip("/").split("/")
        self.on = {}
        active = True
        while len(parts) > 1 and parts[0] in WITH_NUMBER | WITHOUT:
            name = parts.pop(0)
            value = int(parts.pop(0)) if name in WITH_NUMBER else True
            if name == "first":
                active = COUNTS.visits(path) < value
            elif active:
                self.on[name] = value
        self.file = "/".join(parts)

    def get(self, name):
        return self.on.get(name)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root = "."

    def do_GET(self):
        if self.path == "/_stats":
            return self.send_text(200, COUNTS.as_json(), "application/json")
        if self.path == "/_client":
            return self.send_text(200, self.client_address[0].encode() + b"\n")
        COUNTS.add(self.path, requests=1)
        if self.headers.get("Range"):
            COUNTS.add(self.path, ranges=[self.headers["Range"]])
        self.answer()

    def do_HEAD(self):
        COUNTS.add(self.path, heads=1)
        self.answer()

    def do_POST(self):
        if self.path != "/_reset":
            return self.send_text(404, b"no such thing\n")
        COUNTS.reset()
        self.send_text(200, b"forgotten\n")

    def answer(self):
        try:
            faults = Faults(unquote(self.path.split("?")[0]))
        except ValueError:
            return self.send_text(400, b"a fault prefix lacks its number\n")
        if faults.get("status"):
            return self.send_text(faults.get("status"), b"as you asked\n")
        if faults.get("redirect"):
            # The other prefixes go along; this one is dropped.
            target = self.path.replace("/redirect/", "/", 1)
            return self.send_text(302, b"elsewhere\n", location=target)
        if faults.get("html"):
            page = b"<!DOCTYPE html>\n<html><body><h1>Log in to use this network</h1></body></html>\n"
            return self.send_text(200, page, "text/html")
        path = os.path.realpath(os.path.join(self.root, faults.file or "index.html"))
        # Images are symbolic links into the cache, so only the name's own dots are refused.
        if ".." in faults.file.split("/") or not os.path.isfile(path):
            return self.send_text(404, b"no such file\n")
        with open(path, "rb") as file:
            self.send_file(file, faults)

    def send_text(self, status, body, kind="text/plain", location=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def wanted_range(self, size, etag, modified):
        """(first, end) of the one range asked for, None for the whole, False if it can't be had."""
        header = self.headers.get("Range", "")
        condition = self.headers.get("If-Range")
        if not header.startswith("bytes=") or "," in header:
            return None
        if condition and condition not in (etag, modified):
            return None
        first, _, last = header[len("bytes="):].partition("-")
        try:
            if first:
                start, end = int(first), min(int(last) + 1, size) if last else size
            else:
                start, end = max(size - int(last), 0), size
        except ValueError:
            return None
        return (start, end) if start < end else False

    def send_file(self, file, faults):
        info = os.fstat(file.fileno())
        size = info.st_size
        etag = modified = None
        if not faults.get("noetag"):
            etag = f'"{size:x}-{info.st_mtime_ns:x}"'
            modified = self.date_time_string(info.st_mtime)
        no_length = faults.get("chunked") or faults.get("close")
        wanted = None if no_length or faults.get("norange") else self.wanted_range(size, etag, modified)
        if wanted is False:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{size}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        start, end = wanted or (0, size)
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Type", "text/html" if file.name.endswith(".html") else "application/octet-stream")
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        if etag:
            self.send_header("ETag", etag)
            self.send_header("Last-Modified", modified)
        if faults.get("chunked"):
            self.send_header("Transfer-Encoding", "chunked")
        elif faults.get("close"):
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(end - start))
            if not faults.get("norange"):
                self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if self.command != "HEAD":
            self.send_body(file, start, end, faults)

    def send_body(self, file, start, end, faults):
        limits = [(faults.get(name), name) for name in ("truncate", "reset", "stall") if name in faults.on]
        limit, how = min(limits) if limits else (None, None)
        stop = end if limit is None else min(end, start + limit)
        offset = start
        began = time.monotonic()
        rate = faults.get("slow")
        # Twenty blocks a second at most, so that a slow link trickles instead of bursting.
        block = max(1, min(BLOCK, rate // 20)) if rate else BLOCK
        try:
            while offset < stop:
                sent = self.send_block(file, offset, min(block, stop - offset), faults)
                if sent == 0:
                    break
                offset += sent
                COUNTS.add(self.path, bytes=sent)
                if rate:
                    ahead = (offset - start) / rate - (time.monotonic() - began)
                    time.sleep(max(0, ahead))
            if limit is not None and offset < end:
                self.break_off(how)
            elif faults.get("chunked"):
                self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True

    def send_block(self, file, offset, length, faults):
        if not faults.get("chunked"):
            return os.sendfile(self.connection.fileno(), file.fileno(), offset, length)
        data = os.pread(file.fileno(), length, offset)
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        return len(data)

    def break_off(self, how):
        self.close_connection = True
        if how == "stall":
            # Until the client gives up; a byte or an end from it both mean that.
            self.connection.settimeout(3600)
            self.connection.recv(1)
        elif how == "reset":
            # Close with data "lingering" for no time at all: a reset, not an orderly end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.connection = self.request = socket.socket()

    def log_message(self, form, *args):
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {self.client_address[0]} {form % args}\n")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Handler.root = sys.argv[1]
    address, _, port = sys.argv[2].rpartition(":")
    Server((address, int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
