"""The clients that `record.py` records, and what each is made to send."""

import contextlib
import io
import os
import subprocess
import urllib.request
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import botocore.httpchecksum
import duckdb
import duckdb_ext.extensions
import minio
import obstore
import pyarrow.fs
from awscrt.auth import (
    AwsCredentialsProvider,
    AwsSignatureType,
    AwsSignedBodyHeaderType,
    AwsSigningConfig,
    aws_sign_request,
)
from awscrt.http import HttpHeaders, HttpRequest
from botocore.config import Config
from obstore.store import S3Store

ID = "FG1ABCDEFGHIJKLMNOPQRSTUVWXYZ234567ABCDEFGHIJKLMNOPQRS"
SECRET = "b3VyIG93biBzZWNyZXQsIGZvciB0aGVzZSB0ZXN0cyA"
KEYS = [
    "plain.txt",
    "a b/c+d",
    "100%/%41",
    "a//b/../c/./d",
    "ключ/ö/日本",
    "!'()*;:@&=$,~-_.",
    "tail/",
    '"<>\\^`{|}[]#?',
]


@dataclass
class Places:
    """Where the servers are, and where clients may write."""

    http: str
    https: str
    folder: Path
    node: Path


def boto(url: str, **more: object) -> object:
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}, **more)
    of = {"aws_access_key_id": ID, "aws_secret_access_key": SECRET, "region_name": "eu-central-1"}
    return boto3.client("s3", endpoint_url=url, config=config, verify=False, **of)


def run_boto3(at: Places) -> None:
    warnings.simplefilter("ignore")
    s3 = boto(at.http)
    of = {"Bucket": "lake"}
    for key in KEYS:
        s3.put_object(**of, Key=key, Body=b"body of " + key.encode())
        s3.get_object(**of, Key=key, Range="bytes=0-9", VersionId="a+b/c=")
    meta = {"a": "two  spaces", "b": "  around  ", "empty": ""}
    s3.put_object(**of, Key="k", Body=b"x", Metadata=meta, ContentType="text/plain; charset=utf-8", IfNoneMatch="*")
    s3.put_object(**of, Key="k", Body=b"x", ChecksumAlgorithm="SHA256", ContentMD5="nd1OgpYPkKHoOCDTMbpZ8w==")
    s3.list_objects_v2(**of, Prefix="a b/c+d&e=f", Delimiter="/", StartAfter="ö%~")
    s3.copy_object(**of, Key="to ö", CopySource={"Bucket": "lake", "Key": "from + ö"})
    s3.delete_objects(**of, Delete={"Objects": [{"Key": key} for key in KEYS]})
    s3.create_multipart_upload(**of, Key="k")
    s3.upload_part(**of, Key="k", UploadId="u/+= ", PartNumber=1, Body=b"part")
    s3.meta.events.register("before-sign.s3", lambda request, **_: request.headers.add_header("X-Fence-Token", "42"))
    s3.delete_object(**of, Key="k")
    botocore.httpchecksum.AwsChunkedWrapper._DEFAULT_CHUNK_SIZE = 300
    with_tls = boto(at.https)
    with_tls.put_object(**of, Key="chunks", Body=io.BytesIO(bytes(range(256)) * 4))
    with_tls.put_object(**of, Key="empty", Body=io.BytesIO(b""))


def run_boto3_presigned(at: Places) -> None:
    s3 = boto(at.http, signature_version="s3v4")
    of = {"Bucket": "lake"}
    for key in KEYS:
        fetch("GET", s3.generate_presigned_url("get_object", {**of, "Key": key}, ExpiresIn=600))
    asked = {**of, "Key": "k", "ResponseContentType": "text/a b+c"}
    fetch("GET", s3.generate_presigned_url("get_object", asked, ExpiresIn=604800))
    fetch("PUT", s3.generate_presigned_url("put_object", {**of, "Key": "k"}, ExpiresIn=1), b"x")
    part = {**of, "Key": "k", "UploadId": "u/+=", "PartNumber": 2}
    fetch("PUT", s3.generate_presigned_url("upload_part", part), b"x")
    with_header = {**of, "Key": "k", "Metadata": {"a": "b  c"}}
    fetch("PUT", s3.generate_presigned_url("put_object", with_header), b"x", {"x-amz-meta-a": "b  c"})


def fetch(method: str, url: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> None:
    request = urllib.request.Request(url, data=body, method=method, headers=headers or {})
    with contextlib.closing(urllib.request.urlopen(request)):
        pass


def run_aws_c_auth(at: Places) -> None:
    """The signer of aws-c-auth, which some SDKs share, on requests of ours."""
    host = urlsplit(at.http).netloc
    body = AwsSignedBodyHeaderType
    cases = [
        ("GET", "/lake/a%20b//c/../%C3%B6?prefix=a%2Fb%20c&list-type=2&acl", {}, AwsSignatureType.HTTP_REQUEST_HEADERS),
        (
            "PUT",
            "/lake/k",
            {"x-amz-meta-a": "  two   spaces  ", "if-match": '"a"'},
            AwsSignatureType.HTTP_REQUEST_HEADERS,
        ),
        ("GET", "/lake/a+b?versionId=x", {}, AwsSignatureType.HTTP_REQUEST_QUERY_PARAMS),
    ]
    for method, target, headers, kind in cases:
        request = HttpRequest(method, target, HttpHeaders([("host", host), *headers.items()]))
        in_header = kind == AwsSignatureType.HTTP_REQUEST_HEADERS
        config = AwsSigningConfig(
            signature_type=kind,
            credentials_provider=AwsCredentialsProvider.new_static(ID, SECRET),
            region="us-west-2",
            service="s3",
            use_double_uri_encode=False,
            should_normalize_uri_path=False,
            signed_body_value="UNSIGNED-PAYLOAD",
            signed_body_header_type=body.X_AMZ_CONTENT_SHA_256 if in_header else body.NONE,
            expiration_in_seconds=None if in_header else 60,
        )
        signed = aws_sign_request(request, config).result(10)
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed.headers)
        raw(host, f"{signed.method} {signed.path} HTTP/1.1\r\n{lines}Content-Length: 0\r\n\r\n")


def raw(host: str, head: str) -> None:
    import socket

    name, port = host.split(":")
    with socket.create_connection((name, int(port))) as connection:
        connection.sendall(head.encode())
        connection.recv(4096)


def run_object_store(at: Places) -> None:
    of = {"access_key_id": ID, "secret_access_key": SECRET, "region": "eu-west-1"}
    store = S3Store("lake", endpoint=at.http, client_options={"allow_http": True}, **of)
    for key in ["plain.txt", "a b/c+d", "100%/%41", "ключ/ö", "!'()*;:@&=$,~-_."]:
        obstore.put(store, key, b"x", attributes={"Content-Type": "text/plain", "a": "two  spaces"})
        obstore.head(store, key)
    list(store.list(prefix="a b+c&d~*"))
    obstore.copy(store, "from ö", "to ö+", overwrite=True)
    with contextlib.suppress(obstore.exceptions.GenericError):  # the answer names nothing
        obstore.delete(store, ["a b", "c+d"])
    obstore.put(store, "k", b"x", mode="create")
    fetch("GET", obstore.sign(store, "GET", "a b/ö+", timedelta(seconds=60)))


def run_minio_py(at: Places) -> None:
    client = minio.Minio(urlsplit(at.http).netloc, ID, SECRET, secure=False, region="us-east-1")
    for key in [key for key in KEYS if ".." not in key]:
        client.put_object("lake", key, io.BytesIO(b"x"), 1, metadata={"a": "two  spaces"})
        client.stat_object("lake", key)
    list(client.list_objects("lake", prefix="a b+c", recursive=True))
    fetch("GET", client.presigned_get_object("lake", "a b/ö+"))


def run_aws_cpp(at: Places) -> None:
    at_server = {"endpoint_override": urlsplit(at.http).netloc, "scheme": "http", "region": "us-east-1"}
    store = pyarrow.fs.S3FileSystem(access_key=ID, secret_key=SECRET, allow_bucket_creation=True, **at_server)
    for key in ["plain.txt", "a b/c+d", "k=v/a:b,c@d&e$", "ö"]:
        with store.open_output_stream(f"lake/{key}") as out:
            out.write(b"from pyarrow " * 20)
        store.get_file_info(f"lake/{key}")
    store.get_file_info(pyarrow.fs.FileSelector("lake/a b+c", recursive=True, allow_not_found=True))
    store.delete_file("lake/a b")


def run_js(at: Places) -> None:
    subprocess.run(["node", "--input-type=module", "-e", JS], check=True, cwd=at.node, env=environment(at), timeout=60)


JS = """
import { S3Client, PutObjectCommand, GetObjectCommand, ListObjectsV2Command, CopyObjectCommand } from "@aws-sdk/client-s3";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";
import { Readable } from "node:stream";
process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
const of = (endpoint) => new S3Client({ endpoint, region: "us-east-1", forcePathStyle: true, maxAttempts: 1 });
const s3 = of(process.env.AT_HTTP);
const Bucket = "lake";
for (const Key of JSON.parse(process.env.KEYS)) {
    await s3.send(new PutObjectCommand({ Bucket, Key, Body: "x", Metadata: { a: "two  spaces" } }));
    await s3.send(new GetObjectCommand({ Bucket, Key }));
    if (Key.includes("..")) continue; // fetch would take it away
    await fetch(await getSignedUrl(s3, new GetObjectCommand({ Bucket, Key }), { expiresIn: 60 }));
}
await fetch(await getSignedUrl(s3, new PutObjectCommand({ Bucket, Key: "k", Body: "x" })), { method: "PUT", body: "x" });
await s3.send(new ListObjectsV2Command({ Bucket, Prefix: "a b+c/ö*'()", Delimiter: "/" }));
await s3.send(new CopyObjectCommand({ Bucket, Key: "to", CopySource: "lake/from%20%C3%B6" }));
const Body = Readable.from([Buffer.alloc(2000, "a"), Buffer.alloc(500, "b")]);
await of(process.env.AT_HTTPS).send(new PutObjectCommand({ Bucket, Key: "stream", Body, ContentLength: 2500 }));
process.exit(0);
"""


def environment(at: Places, **more: str) -> dict[str, str]:
    import json

    keys = {"AWS_ACCESS_KEY_ID": ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    places = {"AT_HTTP": at.http, "AT_HTTPS": at.https, "KEYS": json.dumps(KEYS), "HOME": str(at.folder)}
    others = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**others, **keys, **places, **more}


def run_command(at: Places, command: list[str], **more: str) -> None:
    """The server is no whole S3, so commands may fail after they have sent what is wanted."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(command, check=False, env=environment(at, **more), timeout=20, **quiet)


def run_s5cmd(at: Places) -> None:
    file = at.folder / "file"
    file.write_text("from s5cmd")
    s5cmd = ["s5cmd", "--endpoint-url", at.http, "--retry-count", "0"]
    for key in ["a b/c+d", "ö%41", "!'()*;:@&=$,~"]:
        run_command(at, [*s5cmd, "cp", str(file), f"s3://lake/{key}"])
    run_command(at, [*s5cmd, "ls", "s3://lake/a b+*"])


def run_rclone(at: Places) -> None:
    file = at.folder / "with  space+ö.txt"
    file.write_text("from rclone")
    of = {"RCLONE_S3_PROVIDER": "Other", "RCLONE_S3_ENV_AUTH": "true", "RCLONE_S3_ENDPOINT": at.http}
    run_command(at, ["rclone", "--retries", "1", "copyto", str(file), ":s3:lake/a b+c/ö"], **of)
    run_command(at, ["rclone", "--retries", "1", "lsf", ":s3:lake/a b+c"], **of)


def run_s3cmd(at: Places) -> None:
    file = at.folder / "file"
    file.write_text("from s3cmd")
    host = urlsplit(at.http).netloc
    s3cmd = ["s3cmd", "--no-ssl", f"--host={host}", f"--host-bucket={host}", "--region=us-east-1"]
    run_command(at, [*s3cmd, "put", str(file), "s3://lake/a b+c/ö", "--add-header=x-amz-meta-a:two  spaces"])
    run_command(at, [*s3cmd, "ls", "s3://lake/a b+c"])
    run_command(at, [*s3cmd, "del", "s3://lake/a b+c"])


def run_minio_go(at: Places) -> None:
    """restic has minio-go, which signs chunks."""
    run_command(at, ["restic", "-r", f"s3:{at.http}/lake/a b+c", "init"], RESTIC_PASSWORD="p")
    run_command(at, ["restic", "-r", f"s3:{at.http}/lake/a b+c", "snapshots"], RESTIC_PASSWORD="p")


def run_duckdb(at: Places) -> None:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    extension = next(Path(duckdb_ext.extensions.__path__[0]).rglob("*.duckdb_extension"))
    connection.execute(f"LOAD '{extension}'")
    host = urlsplit(at.http).netloc
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{ID}', SECRET '{SECRET}', ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false)"
    )
    with contextlib.suppress(duckdb.Error):
        connection.execute("COPY (SELECT 42) TO 's3://lake/a b+c/k=v/ö.csv'")
    with contextlib.suppress(duckdb.Error):
        connection.execute("FROM glob('s3://lake/a b+c/*.csv')").fetchall()


CLIENTS: dict[str, Callable[[Places], None]] = {
    "boto3": run_boto3,
    "boto3 presigned": run_boto3_presigned,
    "aws-c-auth": run_aws_c_auth,
    "object_store": run_object_store,
    "minio-py": run_minio_py,
    "aws-sdk-cpp": run_aws_cpp,
    "aws-sdk-js": run_js,
    "s5cmd": run_s5cmd,
    "rclone": run_rclone,
    "s3cmd": run_s3cmd,
    "minio-go": run_minio_go,
    "duckdb": run_duckdb,
}
