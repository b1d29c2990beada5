//! How the words of the API look in its description: alphabets, lengths and ranges, said once for each
//! word. What a schema cannot say (bytes instead of characters, NFC) is in its text.

use std::time::Duration;

use serde_json::{Value, json};
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::schema::{
    AdditionalProperties, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type,
};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use crate::AuditAction;
use crate::json::{
    KEY_KEPT_MAX, KEY_KEPT_MIN, LOCK_RESOURCES_MAX, OWNER_BYTES_MAX, Order, REASON_BYTES_MAX,
    WAIT_MAX,
};
use crate::names::{KEY_BYTES_MAX, RESOURCE_BYTES_MAX};
use crate::principal::NAME_BYTES_MAX;
use crate::{
    EntityTag, ErrorCode, LockId, MaxHold, Metadata, ObjectKey, OperationId, PrincipalName,
    ResourceName, Token, Ttl, WriterName,
};

/// No control characters.
const PLAIN: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";
/// Every character that a key may not have, of those that are common.
const HIDDEN: &str = r"\x00-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff";

/// A keyword that the builders have no name for: they print what they take as extensions as it is. One at a
/// time: several would come in any order.
pub fn keywords(word: [(&str, Value); 1]) -> Option<Extensions> {
    Some(Extensions::from_iter(word))
}

fn string(min: usize, max: usize, pattern: &str) -> ObjectBuilder {
    let text = ObjectBuilder::new().schema_type(SchemaType::Type(Type::String));
    text.min_length(Some(min)).max_length(Some(max)).pattern(Some(pattern))
}

/// Text of this form.
pub fn form(pattern: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).pattern(Some(pattern))
}

/// A number from 0 to 2^63-1.
fn version() -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::Integer))
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(0_isize))
        .maximum(Some(isize::MAX))
}

/// One of these words.
pub fn words(words: impl IntoIterator<Item = &'static str>) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).enum_values(Some(words))
}

/// A UUID with hyphens, whose third and fourth group begin with these characters.
fn uuid(version: &str, variant: &str, description: &str) -> ObjectBuilder {
    let hex = |digits: usize| format!("[0-9a-fA-F]{{{digits}}}");
    let third = format!("{version}{}", hex(3));
    let fourth = format!("{variant}{}", hex(3));
    let parts = [hex(8), hex(4), third, fourth, hex(12)].join("-");
    let format = SchemaFormat::KnownFormat(KnownFormat::Uuid);
    form(&format!("^{parts}$")).format(Some(format)).description(Some(description))
}

macro_rules! schemas {
    ($($type:ty => $schema:expr;)+) => {$(
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                $schema.into()
            }
        }

        impl ToSchema for $type {}
    )+};
}

macro_rules! forms {
    ($($(#[doc = $doc:literal])+ $name:ident => $schema:expr;)+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug)]
            pub struct $name;
        )+
        schemas! { $($name => $schema;)+ }
    };
}

schemas! {
    ResourceName => string(1, RESOURCE_BYTES_MAX,
            r"^([A-Za-z0-9_~\-:@#+=,]|\.{1,2}[A-Za-z0-9_~\-:@#+=,]|\.{3})[A-Za-z0-9._~\-:@#+=,]*$")
        .description(Some("The name of a resource; neither `.` nor `..`."));
    PrincipalName => string(1, NAME_BYTES_MAX, r"^[A-Za-z0-9][A-Za-z0-9._:/@\-]*$")
        .description(Some("The name of a principal of the rules of access; it does not begin with `role:`."));
    WriterName => form(r"^(role:)?[A-Za-z0-9][A-Za-z0-9._:/@\-]{0,127}$")
        .description(Some("A principal, or all who have a role: `role:NAME`."));
    ObjectKey => string(1, KEY_BYTES_MAX, &object_key())
        .description(Some("The key of an object: at most 1024 bytes of UTF-8 in NFC, without control, \
            format and unassigned characters; no segment is empty, `.` or `..`."));
    Token => form(&format!("^({})$", between(1, i64::MAX.unsigned_abs())))
        .examples([json!("4711")])
        .description(Some("A fence token: a decimal number from 1 to 2^63-1, as text."));
    LockId => uuid("[47]", "[89abAB]", "The id of a lock: a random UUID, version 4 or 7.");
    OperationId => uuid("[0-9a-fA-F]", "[0-9a-fA-F]", "The id of an operation: a UUID.");
    Ttl => form(&format!("^(infinite|{})$", durations(Ttl::MIN, Ttl::MAX)))
        .examples([json!("30s"), json!("infinite")])
        .description(Some("`infinite`, or a duration from `1s` to `24h`: a whole number and `ms`, `s`, \
            `m`, `h` or `d`."));
    MaxHold => form(&format!("^({})$", durations(MaxHold::MIN, MaxHold::MAX)))
        .examples([json!("2h")])
        .description(Some("A duration from `1s` to `30d`: a whole number and `ms`, `s`, `m`, `h` or \
            `d`."));
    Metadata => ObjectBuilder::new()
        .property_names(Some(Schema::from(string(1, Metadata::KEY_BYTES_MAX, PLAIN).build())))
        .additional_properties(Some(AdditionalProperties::from(
            string(0, Metadata::VALUE_BYTES_MAX, r"^[^\x00]*$"),
        )))
        .max_properties(Some(Metadata::ENTRIES_MAX))
        .description(Some("A few words: at most 4096 bytes of JSON in all, keys of at most 64 bytes \
            without control characters, values of at most 1024 without NUL."));
    Order => OneOfBuilder::new()
        .item(form(&format!("^({})$", between(1, i64::MAX.unsigned_abs()))))
        .item(ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::Integer))
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(1_isize))
            .maximum(Some(isize::MAX)))
        .examples([json!("42")])
        .description(Some("A number from 1 to 2^63-1, as digits or as an integer."));
    EntityTag => form(&format!("^\"g{number}-v{number}\"$", number = number()))
        .examples([json!("\"g0-v17\"")])
        .description(Some("The tag of an object."));
    ErrorCode => words(ErrorCode::ALL.iter().map(|code| code.as_str()))
        .description(Some("An error code; each has a page at `/docs/errors/{code}`."));
    AuditAction => words(AuditAction::ALL.iter().map(|action| action.as_str()))
        .description(Some("What was done; `broken` is a break that came due."));
}

forms! {
    /// What rules of access allow.
    ActionName => words([
            "lock", "fence", "fence-force", "write", "clear", "read", "list", "forward-read", "observe", "break",
            "freeze", "protect", "resolve", "delegate", "admin",
        ])
        .description(Some("What rules of access allow."));
    /// The name of a holder.
    Owner => string(0, OWNER_BYTES_MAX, PLAIN)
        .description(Some("A name, shown to everybody: at most 256 bytes, no control characters."));
    /// Why an operator did something.
    Reason => string(1, REASON_BYTES_MAX, PLAIN)
        .description(Some("Why: 1 to 1024 bytes, no control characters."));
    /// How long a call may wait.
    Wait => form(&format!("^({})$", durations(Duration::ZERO, WAIT_MAX)))
        .examples([json!("30s")])
        .description(Some("A duration of at most `50s`: a whole number and `ms`, `s` or `m`."));
    /// How long a break may take.
    Delay => form(&format!("^({})$", durations(Duration::ZERO, Ttl::MAX)))
        .examples([json!("5m")])
        .description(Some("A duration of at most `24h`: a whole number and `ms`, `s`, `m`, `h` or \
            `d`."));
    /// The digest of stored bytes.
    Sha256 => form("^[0-9a-f]{64}$")
        .description(Some("A SHA-256 in hexadecimal."));
    /// The beginning of a name.
    Prefix => string(0, KEY_BYTES_MAX, PLAIN)
        .description(Some("At most 1024 bytes, no control characters."));
    /// A place in a list of names.
    NameCursor => form("^([0-9a-f]{2}){1,1024}$")
        .description(Some("The `next_cursor` of a page; other texts are refused."));
    /// A place in a list of numbered entries.
    NumberCursor => form(&format!("^({})$", between(1, i64::MAX.unsigned_abs())))
        .description(Some("The `next_cursor` of a page; other texts are refused."));
    /// Where to begin in a record that is followed.
    RecordAfter => form(&format!("^(now|{})$", between(0, i64::MAX.unsigned_abs())))
        .examples([json!("now")])
        .description(Some("The `next_cursor` of a page that was followed, `0`, or `now`."));
    /// A place in the list of intents.
    IntentCursor => form("^[1-9][0-9]{0,15}-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
        .description(Some("The `next_cursor` of a page; other texts are refused."));
    /// A place in the feed of events.
    EventPlace => form(&format!("^g{number}-{number}$", number = number()))
        .examples([json!("g0-17")])
        .description(Some("A place in the feed of events."));
    /// Where to begin in the feed of events.
    EventsAfter => form(&format!("^(now|g{number}-{number})$", number = number()))
        .examples([json!("now")])
        .description(Some("A place in the feed of events, or `now`."));
    /// The event that was read last.
    LastEvent => form(&format!("^(|now|g{number}-{number})$", number = number()))
        .description(Some("The id of an event; empty if nothing was read yet."));
    /// The name of a bucket of S3.
    BucketName => string(3, 63, r"^[a-z0-9]([a-z0-9\-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9\-]*[a-z0-9])?)*$")
        .description(Some("The name of a bucket, by the rules of S3: it does not look like an IP address either, and has no \
            beginning or end that S3 keeps for itself."));
    /// The name of an upstream.
    UpstreamName => string(1, 64, "^[A-Za-z0-9_-][A-Za-z0-9._-]*$")
        .description(Some("The name of an upstream in the settings."));
    /// A path at an upstream.
    UpstreamPath => form(&upstream_path())
        .description(Some("No segment but the last is empty, none is `.` or `..`; no control character, \
            backslash or encoded slash, nothing percent-encoded twice."));
    /// The digest of a body.
    Md5 => form("^[A-Za-z0-9+/]{21}[AQgw]==$")
        .description(Some("The MD5 of the body in base64."));
    /// The digests of a body (RFC 9530).
    Digests => form(&digests())
        .examples([json!("sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:")])
        .description(Some("`sha-256=:...:` and `sha-512=:...:` in base64, each once (RFC 9530)."));
    /// A key that a write takes effect under once.
    IdempotencyKey => string(1, 255, "^[!-~]+$")
        .description(Some("1 to 255 visible ASCII characters."));
    /// How long such a key is remembered.
    KeyKept => form(&format!("^({})$", durations(KEY_KEPT_MIN, KEY_KEPT_MAX)))
        .examples([json!("1h")])
        .description(Some("A duration of at least `1m`; the gateway's `keys_kept` (`GET /status` has it) counts if that \
            is less. A whole number and `ms`, `s`, `m`, `h` or `d`."));
    /// A type of bytes.
    ContentType => string(1, 255, "^[ -~]+$")
        .description(Some("1 to 255 visible ASCII characters and spaces."));
    /// A list of tags.
    Tags => form(r#"^(\*|(W/)?"[^\x00-\x20\x7f"]*"([ \t]*,[ \t]*(W/)?"[^\x00-\x20\x7f"]*"){0,31})$"#)
        .examples([json!("\"g0-v17\""), json!("*")])
        .description(Some("`*`, or at most 32 entity tags."));
    /// The name of a part of a commit.
    PartName => string(1, 255, r#"^[!#-\[\]-~]+$"#)
        .description(Some("1 to 255 visible ASCII characters without quotes and backslashes, other than \
            `operations`."));
    /// Nothing but a star.
    Star => form(r"^\*$")
        .description(Some("Only `*`."));
    /// The versions that resources must be at.
    Versions => ObjectBuilder::new()
        .property_names(match ResourceName::schema() {
            RefOr::T(schema) => Some(schema),
            RefOr::Ref(_) => None,
        })
        .additional_properties(Some(AdditionalProperties::from(version())))
        .max_properties(Some(LOCK_RESOURCES_MAX))
        .description(Some("Resources and their versions."));
    /// A version, or another count.
    Count => version()
        .description(Some("A number from 0 to 2^63-1."));
    /// A part of the gateway.
    Part => words(["gateway", "ledger", "mint", "blobs", "settings", "writes", "grants"])
        .description(Some("A part of the gateway."));
    /// What keeps the ledger.
    LedgerKind => words(["postgres", "sqlite", "memory"])
        .description(Some("What keeps the ledger."));
    /// What numbers grants.
    MintKind => words(["etcd", "embedded", "memory"])
        .description(Some("What numbers grants."));
    /// What keeps large payloads.
    BlobsKind => words(["folder", "s3", "azure", "none", "memory"])
        .description(Some("What keeps large payloads."));
    /// That nobody knows.
    Unknown => words(["unknown"])
        .description(Some("What became of the request is not known."));
    /// The kind of an operation.
    Kind => words(["put", "delete", "delete_all", "commit", "forward"])
        .description(Some("What an operation did; `forward`: it went to an upstream."));
}

fn object_key() -> String {
    let plain = format!("[^/{HIDDEN}]");
    let first = format!("[^/.{HIDDEN}]");
    let segment = format!("({first}|\\.{{1,2}}{first}|\\.{{3}}){plain}*");
    format!("^{segment}(/{segment})*$")
}

fn upstream_path() -> String {
    let (plain, first) = (r"[^/\\\x00-\x1f\x7f]", r"[^/.\\\x00-\x1f\x7f]");
    let segment = format!("({first}|\\.{{1,2}}{first}|\\.{{3}}){plain}*");
    format!("^({segment}/)*({segment})?$")
}

fn digests() -> String {
    let sha256 = "sha-256=:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=:";
    let sha512 = "sha-512=:[A-Za-z0-9+/]{85}[AQgw]==:";
    let other = "[a-rt-z*][a-z0-9_.*-]*=:[^,]*:";
    let one = format!("({sha256}|{sha512}|{other})");
    format!("^{one}([ \\t]*,[ \\t]*{one})*$")
}

/// A number from 0 to 2^63-1.
fn number() -> String {
    format!("({})", between(0, i64::MAX.unsigned_abs()))
}

/// The durations from `min` to `max`, as a pattern: a whole number and a unit.
fn durations(min: Duration, max: Duration) -> String {
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let whole = units.iter().filter_map(|(unit, unit_ms)| {
        let (least, most) = (ms(min).div_ceil(*unit_ms), ms(max) / unit_ms);
        (least <= most).then(|| format!("({}){unit}", between(least, most)))
    });
    whole.collect::<Vec<_>>().join("|")
}

/// The numbers from `least` to `most` without leading zeros, as a pattern.
fn between(least: u64, most: u64) -> String {
    let (mut parts, mut from) = (Vec::new(), least);
    loop {
        let digits = from.to_string().len();
        // How many digits the longest numbers have of which all are in it.
        let full = most.saturating_add(1).ilog10() as usize;
        if from == ten_to(digits - 1) && digits <= full {
            parts.push(match (digits, full) {
                (1, 1) => "[1-9]".to_owned(),
                (1, 2) => "[1-9][0-9]?".to_owned(),
                _ => format!("[1-9][0-9]{{{},{}}}", digits - 1, full - 1),
            });
            from = ten_to(full);
        } else {
            let to = most.min(ten_to(digits) - 1);
            same_length(from.to_string().as_bytes(), to.to_string().as_bytes(), "", &mut parts);
            from = to + 1;
        }
        if from > most {
            return parts.join("|");
        }
    }
}

/// Numbers of the API have at most 19 digits, so that this fits.
fn ten_to(digits: usize) -> u64 {
    10_u64.pow(u32::try_from(digits).unwrap_or_default())
}

/// The same for two numbers of as many digits, after a common beginning.
fn same_length(least: &[u8], most: &[u8], begin: &str, parts: &mut Vec<String>) {
    let any = |digits: usize| match digits {
        0 => String::new(),
        1 => "[0-9]".to_owned(),
        _ => format!("[0-9]{{{digits}}}"),
    };
    let ([first, least_rest @ ..], [last, most_rest @ ..]) = (least, most) else {
        parts.push(begin.to_owned());
        return;
    };
    if first == last {
        return same_length(least_rest, most_rest, &format!("{begin}{}", *first as char), parts);
    }
    let (mut first, mut last) = (*first, *last);
    if least_rest.iter().any(|digit| *digit != b'0') {
        let nines = vec![b'9'; least_rest.len()];
        same_length(least_rest, &nines, &format!("{begin}{}", first as char), parts);
        first += 1;
    }
    let partly = most_rest.iter().any(|digit| *digit != b'9').then_some(last);
    if partly.is_some() {
        last -= 1;
    }
    if first <= last {
        let rest = any(least_rest.len());
        parts.push(format!("{begin}[{}-{}]{rest}", first as char, last as char));
    }
    if let Some(digit) = partly {
        let zeros = vec![b'0'; most_rest.len()];
        same_length(&zeros, most_rest, &format!("{begin}{}", digit as char), parts);
    }
}
