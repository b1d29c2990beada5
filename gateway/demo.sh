#!/bin/sh
# Builds the gateway, starts it on the embedded default, plays a late writer that bounces, and
# leaves the gateway running. Needs Rust and a C compiler; installs the rest on Debian and Ubuntu.
set -eu
cd "$(dirname "$0")/.."

url=http://127.0.0.1:8080
resource=demo-$(date +%s)
object=$url/resources/$resource/objects/report.txt
log=fencegate-data/gateway.log

bold=
plain=
[ ! -t 1 ] || { bold=$(printf '\033[1m'); plain=$(printf '\033[0m'); }

say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }
# Prints a call as one could type it, makes it, and prints the answer, which stays in $answer.
show() {
    printf '  $ curl'
    for word; do
        case $word in
        *[!A-Za-z0-9:/._=-]*) printf " '%s'" "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    echo
    answer=$(curl -sS "$@" | tr -d '\r')
    printf '%s\n' "$answer" | sed 's/^/  /'
}
# Takes the lock for an owner; the token stays in $token.
acquire() {
    show -X POST "$url/locks" -H 'Content-Type: application/json' \
        -d "{\"resource\":\"$resource\",\"owner\":\"$1\",\"ttl\":\"1s\"}"
    token=$(printf '%s\n' "$answer" | sed -n 's/.*"token":"\([0-9]*\)".*/\1/p')
    [ -n "$token" ] || fail 'There is no token in this answer.'
}
# Writes the object with a token.
write() {
    show -i -X PUT "$object" -H "X-Fence-Token: $1" -H 'Content-Type: text/plain' -d "$2"
}

# 1. What the build and the demonstration need.
packages=
command -v cc >/dev/null || packages="$packages build-essential"
{ command -v protoc >/dev/null &&
    [ -f "$(dirname "$(command -v protoc)")/../include/google/protobuf/descriptor.proto" ]; } ||
    packages="$packages protobuf-compiler libprotobuf-dev"
command -v curl >/dev/null || packages="$packages curl"
if [ -n "$packages" ]; then
    say "Installing$packages"
    as_root=
    [ "$(id -u)" -eq 0 ] || as_root=sudo
    command -v apt-get >/dev/null || fail "Please install$packages, or what brings the same programs."
    $as_root apt-get update -q
    # shellcheck disable=SC2086 # one word for each package
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q $packages
fi
[ ! -x "$HOME/.cargo/bin/cargo" ] || PATH="$PATH:$HOME/.cargo/bin"
command -v cargo >/dev/null || fail 'Rust is missing: see https://rustup.rs'

# 2. The gateway.
if curl -s --max-time 5 -o /dev/null "$url/"; then
    running=$(cat fencegate-data/gateway.pid 2>/dev/null || echo PID)
    fail "Something already answers on $url. If it is the gateway of an earlier run, stop it with
'kill $running' and run this again, or go on with it: the README has a tour."
fi
say 'Building the gateway (some minutes the first time)'
cargo build --profile demo --locked -p fencegate

say "Starting it on $url, with its data in ./fencegate-data"
mkdir -p -m 700 fencegate-data
nohup "${CARGO_TARGET_DIR:-target}/demo/fencegate" serve >>"$log" 2>&1 </dev/null &
pid=$!
echo "$pid" >fencegate-data/gateway.pid
tries=0
until curl -sf -o /dev/null "$url/readyz"; do
    kill -0 "$pid" 2>/dev/null || { tail -n 20 "$log"; fail "It ended; its log is $log"; }
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || fail "It is not ready after 30 s; its log is $log"
    sleep 0.1
done

# 3. The late writer.
say '1. Worker A takes the lock for one second. The answer has a fence token.'
acquire 'worker A'
token_a=$token

say '2. A writes with its token.'
write "$token_a" 'written by A'

say '3. A stalls for two seconds: a long pause, a slow disk, a lost network. Its lock expires.'
sleep 2

say '4. Worker B takes the lock. Its token is higher.'
acquire 'worker B'
token_b=$token

say '5. B writes.'
write "$token_b" 'written by B'

say '6. A wakes up, believes that it still has the lock, and writes. It is refused.'
write "$token_a" 'late write of A'
case $answer in
"HTTP/1.1 412 "*fence-token-stale*) ;;
*) fail 'This is not the answer that a late writer must get.' ;;
esac

say "7. B's bytes are still there."
show "$object"
[ "$answer" = 'written by B' ] || fail "B's bytes are gone."

say '8. What the operator sees: the counter in /metrics ...'
echo "  \$ curl $url/metrics | grep ^fencegate_rejections"
curl -sS "$url/metrics" | grep '^fencegate_rejections' | sed 's/^/  /'
say '   ... and who was refused, why, and how late it was.'
sleep 1 # refusals are written down off the path of requests
show "$url/rejections?resource=$resource"

say "The gateway goes on running on $url (process $pid, log in $log)."
echo "Look at it in a browser: $url/ui/"
echo "Stop it with: kill $pid"
