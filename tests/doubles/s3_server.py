#!/usr/bin/env python3
"""An object store in memory that speaks Amazon S3's protocol on a loopback port, and fails as a plan says.

usage: s3_server.py DIR     writes DIR/port when it listens, and a line for each request to DIR/log

It verifies every signature and checksum itself: the keys are AKIDTEST and SECRETTEST, with the session token TOKENTEST if a
request has one. Buckets exist when they are named.

DIR/plan holds the failures, a line each: OPERATION WHEN WHAT [VALUE]; it is read again when it changes, and counting begins anew.
    OPERATION   PutObject, GetObject, HeadObject, DeleteObject, DeleteObjects, ListObjectsV2, ListMultipartUploads,
                CreateMultipartUpload, UploadPart, CompleteMultipartUpload, AbortMultipartUpload, or * for all
    WHEN        3: the third one; 2-4: these; every3: the third, sixth, …; *: all
    WHAT        500, 503, 429, …    that answer, and nothing is done (VALUE: Retry-After)
                cut                 the connection ends before the request is looked at
                lost                it is done, and the connection ends in place of an answer
                half                it is done, and the connection ends in the middle of the answer
                late                it is done, and the answer comes after VALUE seconds
                drop                nothing is done, and the answer is a success
                part                of CompleteMultipartUpload: one part is left out
                flip                of GetObject: a bit of the answer is wrong; of a write: of what is kept
                again               of ListObjectsV2: the next page is this one again
                short               of GetObject: the last byte of the range is missing, in a whole answer
                shift               of GetObject: the range begins one byte later, and says so
                plain               of HeadObject and writes: the store keeps no checksum
                skew                the answer RequestTimeTooSkewed
                expired             the answer ExpiredToken
                kill                the process whose number is in DIR/victim is killed, and nothing is done
                killed              it is done, and then that process is killed
"""
import base64
import datetime
import hashlib
import hmac
import http.server
import os
import re
import signal
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ET
from xml.sax.saxutils import escape

KEY, SECRET, TOKEN = "AKIDTEST", "SECRETTEST", "TOKENTEST"
DIR = sys.argv[1]
LOCK = threading.RLock()
OBJECTS, UPLOADS = {}, {}  # (bucket, key): (data, etag, checksum, time); id: {…}
PLAN = {"text": None, "rows": [], "counts": {}}
NUMBERS = iter(range(1, 1 << 60))


def sha(data):
    return hashlib.sha256(data).hexdigest()


def b64(data):
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def stamp(t):
    return datetime.datetime.fromtimestamp(t, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def hits(when, count):
    if when == "*":
        return True
    if when.startswith("every"):
        return count % int(when[5:]) == 0
    first, _, last = when.partition("-")
    return int(first) <= count <= int(last or first)


def planned(operation):
    """The failure of this request, (WHAT, VALUE), or None."""
    try:
        with open(os.path.join(DIR, "plan"), encoding="utf-8") as f:
            text = f.read()
    except OSError:
        text = ""
    if text != PLAN["text"]:
        PLAN.update(text=text, rows=[line.split() for line in text.splitlines() if line.strip()], counts={})
    PLAN["counts"][operation] = PLAN["counts"].get(operation, 0) + 1
    PLAN["counts"]["*"] = PLAN["counts"].get("*", 0) + 1
    for row in PLAN["rows"]:
        if row[0] in (operation, "*") and hits(row[1], PLAN["counts"][row[0]]):
            return row[2], (row[3] if len(row) > 3 else "")
    return None


def kill_victim():
    with open(os.path.join(DIR, "victim"), encoding="utf-8") as f:
        os.kill(int(f.read()), signal.SIGKILL)


class Refused(Exception):
    def __init__(self, status, code, text=""):
        super().__init__(code)
        self.status, self.code, self.text = status, code, text


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    # --- the request ---

    def check_signature(self, path, query, body):
        auth = self.headers.get("Authorization", "")
        m = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})",
            auth)
        if not m:
            raise Refused(403, "AccessDenied")
        who, day, region, names, signature = m.groups()
        if who != KEY:
            raise Refused(403, "InvalidAccessKeyId")
        if "host" not in names.split(";") or "x-amz-date" not in names.split(";"):
            raise Refused(403, "AccessDenied", "host and date must be signed")
        for name in self.headers:
            if name.lower().startswith("x-amz-") and name.lower() not in names.split(";"):
                raise Refused(403, "AccessDenied", name + " is not signed")
        token = self.headers.get("x-amz-security-token")
        if token not in (None, TOKEN):
            raise Refused(400, "InvalidToken")
        payload = self.headers.get("x-amz-content-sha256", "")
        if payload != "UNSIGNED-PAYLOAD" and payload != sha(body):
            raise Refused(400, "XAmzContentSHA256Mismatch")
        quote = lambda s: urllib.parse.quote(s, safe="-_.~")
        canonical_query = "&".join(f"{quote(k)}={quote(v)}" for k, v in sorted(query))
        headers = "".join(f"{n}:{' '.join((self.headers.get(n) or '').split())}\n" for n in names.split(";"))
        request = "\n".join([self.command, path, canonical_query, headers, names, payload])
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers.get("x-amz-date"), f"{day}/{region}/s3/aws4_request", sha(request.encode())])
        key = ("AWS4" + SECRET).encode()
        for part in (day, region, "s3", "aws4_request", text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        if key.hex() != signature:
            raise Refused(403, "SignatureDoesNotMatch")

    def check_checksum(self, body):
        want = self.headers.get("x-amz-checksum-sha256")
        if want and want != b64(body):
            raise Refused(400, "BadDigest")

    def operation(self, key, query):
        has = dict(query).__contains__
        if self.command == "GET":
            return "ListMultipartUploads" if has("uploads") else "ListObjectsV2" if not key else "GetObject"
        if self.command == "PUT":
            return "UploadPart" if has("partNumber") else "PutObject"
        if self.command == "POST":
            return "CreateMultipartUpload" if has("uploads") else "DeleteObjects" if has("delete") else "CompleteMultipartUpload"
        if self.command == "DELETE":
            return "AbortMultipartUpload" if has("uploadId") else "DeleteObject"
        return "HeadObject"

    # --- the answer ---

    def send(self, status, body=b"", headers=(), length=None, cut_at=None):
        out = [f"HTTP/1.1 {status} X", f"Date: {self.date_time_string()}", "Server: s3-double"]
        out += [f"{k}: {v}" for k, v in headers]
        out += [f"Content-Length: {len(body) if length is None else length}", "", ""]
        data = "\r\n".join(out).encode() + (b"" if self.command == "HEAD" else body)
        if cut_at:
            data = data[:max(20, int(len(data) * cut_at))]
            self.close_connection = True
        self.wfile.write(data)

    def refuse(self, r, headers=()):
        text = f"<?xml version=\"1.0\"?><Error><Code>{r.code}</Code><Message>{escape(r.text or 'planned')}</Message></Error>"
        return r.status, text.encode(), list(headers)

    # --- operations: each returns (status, body, headers) ---

    def condition(self, at):
        if self.headers.get("If-None-Match") == "*" and at in OBJECTS:
            raise Refused(412, "PreconditionFailed")
        match = self.headers.get("If-Match")
        if match and (at not in OBJECTS or OBJECTS[at][1] != match):
            raise Refused(412 if at in OBJECTS else 404, "PreconditionFailed" if at in OBJECTS else "NoSuchKey")

    def do_PutObject(self, at, query, body, fault):
        self.condition(at)
        etag = '"' + hashlib.md5(body).hexdigest() + '"'
        headers = [("ETag", etag), ("x-amz-checksum-sha256", b64(body))]
        if fault == "flip":
            body = body[:-1] + bytes([body[-1] ^ 1])
        if fault != "drop":
            OBJECTS[at] = (body, etag, b64(body), time.time())
        return 200, b"", headers

    def do_GetObject(self, at, query, body, fault):
        if at not in OBJECTS:
            raise Refused(404, "NoSuchKey")
        self.condition(at)
        data, etag, checksum, _ = OBJECTS[at]
        headers, status = [("ETag", etag)], 200
        m = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if m:
            first, last = int(m[1]) + (fault == "shift"), min(int(m[2]) + (fault == "shift"), len(data) - 1)
            if first >= len(data):
                raise Refused(416, "InvalidRange")
            headers.append(("Content-Range", f"bytes {first}-{last}/{len(data)}"))
            data, status = data[first:last + 1], 206
        if fault == "flip" and data:
            data = data[:-1] + bytes([data[-1] ^ 1])
        if fault == "short":
            data = data[:-1]
        return status, data, headers

    def do_HeadObject(self, at, query, body, fault):
        if at not in OBJECTS:
            raise Refused(404, "NoSuchKey")
        data, etag, checksum, _ = OBJECTS[at]
        return 200, b"", [("ETag", etag), ("x-amz-checksum-sha256", checksum), ("X-Length", len(data))]

    def do_DeleteObject(self, at, query, body, fault):
        if fault != "drop":
            OBJECTS.pop(at, None)
        return 204, b"", []

    def do_DeleteObjects(self, at, query, body, fault):
        if not self.headers.get("x-amz-checksum-sha256") and not self.headers.get("Content-MD5"):
            raise Refused(400, "InvalidRequest", "a checksum is needed")
        for key in ET.fromstring(body).iter("Key"):
            if fault != "drop":
                OBJECTS.pop((at[0], key.text), None)
        return 200, b"<DeleteResult></DeleteResult>", []

    def do_ListObjectsV2(self, at, query, body, fault):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        token, most = query.get("continuation-token", ""), min(int(query.get("max-keys", 1000)), PAGE)
        after = "" if fault == "again" else token
        rows, folders, last = [], set(), ""
        for bucket, key in sorted(OBJECTS):
            if bucket != at[0] or not key.startswith(prefix):
                continue
            rest = key[len(prefix):]
            name = prefix + rest.split(delimiter)[0] + delimiter if delimiter and delimiter in rest else key
            if name <= after or name in folders:
                continue
            if len(rows) == most:
                last = rows[-1][0]
                break
            if name != key:
                folders.add(name)
            rows.append((name, name != key, (bucket, key)))
        xml = f"<ListBucketResult xmlns=\"x\"><IsTruncated>{'true' if last else 'false'}</IsTruncated>"
        xml += f"<NextContinuationToken>{escape(fault == 'again' and token or last)}</NextContinuationToken>" if last else ""
        for name, folder, k in rows:
            xml += f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" if folder else (
                f"<Contents><Key>{escape(name)}</Key><LastModified>{stamp(OBJECTS[k][3])}</LastModified>"
                f"<ETag>{escape(OBJECTS[k][1], {chr(34): '&quot;'})}</ETag><Size>{len(OBJECTS[k][0])}</Size></Contents>")
        return 200, (xml + "</ListBucketResult>").encode(), []

    def do_ListMultipartUploads(self, at, query, body, fault):
        xml = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>"
        for i, u in UPLOADS.items():
            if u["at"][0] == at[0] and u["at"][1].startswith(query.get("prefix", "")):
                xml += (f"<Upload><Key>{escape(u['at'][1])}</Key><UploadId>{i}</UploadId>"
                        f"<Initiated>{stamp(u['begun'])}</Initiated></Upload>")
        return 200, (xml + "</ListMultipartUploadsResult>").encode(), []

    def do_CreateMultipartUpload(self, at, query, body, fault):
        name = f"upload{next(NUMBERS)}"
        age = os.path.join(DIR, "age")  # seconds by which new uploads look older
        begun = time.time() - (float(open(age, encoding="utf-8").read()) if os.path.exists(age) else 0)
        UPLOADS[name] = {"at": at, "parts": {}, "begun": begun}
        return 200, f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>".encode(), []

    def upload(self, at, query):
        u = UPLOADS.get(query.get("uploadId"))
        if not u or u["at"] != at:
            raise Refused(404, "NoSuchUpload")
        return u

    def do_UploadPart(self, at, query, body, fault):
        u = self.upload(at, query)
        etag = '"' + hashlib.md5(body).hexdigest() + '"'
        headers = [("ETag", etag), ("x-amz-checksum-sha256", b64(body))]
        if fault == "flip":
            body = body[:-1] + bytes([body[-1] ^ 1])
        if fault != "drop":
            u["parts"][int(query["partNumber"])] = (body, etag)
        return 200, b"", headers

    def do_CompleteMultipartUpload(self, at, query, body, fault):
        u = self.upload(at, query)
        self.condition(at)
        rows = [(int(p.find("PartNumber").text), p.find("ETag").text, p.find("ChecksumSHA256").text)
                for p in ET.fromstring(body).iter("Part")]
        for number, etag, checksum in rows:
            if number not in u["parts"] or u["parts"][number][1] != etag:
                raise Refused(400, "InvalidPart")
        numbers = [r[0] for r in rows]
        if any(len(u["parts"][n][0]) < SMALLEST for n in numbers[:-1]):
            raise Refused(400, "EntityTooSmall")
        if fault == "part":
            numbers = numbers[1:]
        parts = [u["parts"][n][0] for n in numbers]
        whole = b64(b"".join(hashlib.sha256(p).digest() for p in parts)) + f"-{len(parts)}"
        etag = '"' + hashlib.md5(b"".join(parts)).hexdigest() + f'-{len(parts)}"'
        if fault != "drop":
            OBJECTS[at] = (b"".join(parts), etag, whole, time.time())
        UPLOADS.pop(query["uploadId"])
        return 200, f"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>".encode(), []

    def do_AbortMultipartUpload(self, at, query, body, fault):
        self.upload(at, query)
        UPLOADS.pop(query["uploadId"])
        return 204, b"", []

    # --- all of them ---

    def answer(self):
        path, _, raw = self.path.partition("?")
        query = urllib.parse.parse_qsl(raw, keep_blank_values=True)
        bucket, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with LOCK:
            operation = self.operation(key, query)
            what, value = planned(operation) or ("", "")
            with open(os.path.join(DIR, "log"), "a", encoding="utf-8") as log:
                print(operation, bucket + "/" + key, len(body), what, file=log)
            if what == "kill":
                kill_victim()
            if what in ("cut", "kill"):
                self.close_connection = True
                return
            try:
                if what.isdigit():
                    raise Refused(int(what), {"503": "SlowDown", "500": "InternalError", "429": "TooManyRequests"}.get(what, "Planned"))
                if what == "skew":
                    raise Refused(403, "RequestTimeTooSkewed")
                if what == "expired":
                    raise Refused(400, "ExpiredToken")
                self.check_signature(path, query, body)
                self.check_checksum(body)
                status, data, headers = getattr(self, "do_" + operation)((bucket, key), dict(query), body, what)
            except Refused as r:
                status, data, headers = self.refuse(r, [("Retry-After", value)] if value and what.isdigit() else [])
        if what == "killed":
            kill_victim()
        if what == "late":
            time.sleep(float(value))
        if what == "lost":
            self.close_connection = True
            return
        if what == "plain":
            headers = [h for h in headers if not h[0].startswith("x-amz-checksum")]
        length = dict(headers).pop("X-Length", None)
        self.send(status, data, [h for h in headers if h[0] != "X-Length"], length, 0.5 if what == "half" else None)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):  # a client that goes away is no error
        pass


SMALLEST = int(os.environ.get("S3_DOUBLE_SMALLEST_PART", 5 << 20))
PAGE = int(os.environ.get("S3_DOUBLE_PAGE", 1000))
server = Server(("127.0.0.1", 0), Handler)
with open(os.path.join(DIR, "port.tmp"), "w", encoding="utf-8") as f:
    f.write(str(server.server_address[1]))
os.rename(os.path.join(DIR, "port.tmp"), os.path.join(DIR, "port"))
server.serve_forever()
