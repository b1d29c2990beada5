//! Continuation tokens: where a list goes on. Opaque to callers, who only hand them back.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::address::check_key;
use crate::code::S3Error;

/// What a token begins with, so that its form can be changed.
const FORM: char = '1';

/// The token to go on with after an item of a list: its key, or a common prefix.
pub fn continuation_token(after: &str) -> String {
    format!("{FORM}{}", URL_SAFE_NO_PAD.encode(after))
}

/// The item that the list goes on after.
///
/// # Errors
/// `InvalidArgument` for what [`continuation_token`] did not make.
pub fn read_continuation_token(token: &str) -> Result<String, S3Error> {
    let read = || {
        let bytes = URL_SAFE_NO_PAD.decode(token.strip_prefix(FORM)?).ok()?;
        String::from_utf8(bytes).ok().filter(|after| check_key(after).is_ok())
    };
    let why = "The continuation token provided is incorrect.";
    read().ok_or_else(|| S3Error::argument("continuation-token", "", why))
}
