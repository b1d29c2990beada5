"""Holds an export of an audit against its checkpoint: python3 verify_audit.py EXPORT. Ends with 0 if they agree."""
import base64, hashlib, json, sys

FORM = b"fencegate-audit-1\n"


def sha256(data):
    return hashlib.sha256(data).digest()


def digest(entry):
    fields = sorted((name.encode(), value.encode()) for name, value in entry.items())
    return sha256(FORM + b"".join(b"%s:%d:%s\n" % (name, len(value), value) for name, value in fields))


def root(nodes):
    if len(nodes) < 2:
        return nodes[0] if nodes else sha256(b"")
    middle = 1 << ((len(nodes) - 1).bit_length() - 1)
    return sha256(b"\1" + root(nodes[:middle]) + root(nodes[middle:]))


with open(sys.argv[1], encoding="utf-8") as export:
    head = json.loads(next(export))
    lines = [json.loads(line) for line in export]
wrong, leaves = [], []
for line in lines:
    kind = b"grant" if line["is_grant"] else b"record"
    kept = bytes.fromhex(line["digest"] or "")
    gone = line["entry"] is None and line["is_grant"] and line["number"] <= head["let_go"]
    if not gone and (line["entry"] is None or digest(line["entry"]) != kept):
        wrong.append(line["number"])
    leaves.append(sha256(b"\0" + FORM + b"%d\n%s\n%s\n" % (line["number"], kind, kept.hex().encode())))
_, size, expected, *_ = head["checkpoint"].split("\n")
is_whole = int(size) == len(leaves) and base64.b64decode(expected) == root(leaves)
print(f"{len(leaves)} leaves; wrong: {wrong}; the tree is {'that' if is_whole else 'not that'} of the checkpoint")
sys.exit(0 if is_whole and not wrong else 3)
