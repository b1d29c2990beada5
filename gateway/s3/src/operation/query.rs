//! The query of a request: parameters, and headers that a presigned URL carries as parameters.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::address::decode;
use crate::code::{S3Code, S3Error};

/// The most parameters. A presigned URL with all that a list takes has about twenty.
const PARAMETERS_MAX: usize = 128;

/// What belongs to the signature, and is never a header.
const OF_SIGNATURES: [&str; 8] = [
    "x-amz-algorithm",
    "x-amz-content-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-signedheaders",
];

/// What names a checksum of the body.
const OF_CHECKSUMS: [&str; 2] = ["x-amz-checksum-", "x-amz-sdk-checksum-"];

/// The parameters of a request, decoded. No name stands there twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query as it was sent, without the question mark. A plus is a space, as in forms: those who mean a plus
    /// encode it. A parameter without a value has an empty one, as clients write `?uploads` and `?uploads=` for the same.
    ///
    /// # Errors
    /// `InvalidURI` for an encoding that cannot be read, `InvalidArgument` for a name that stands there twice, or too many.
    pub fn parse(raw: Option<&str>) -> Result<Self, S3Error> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in raw.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) =
                (decode(&name.replace('+', " "))?, decode(&value.replace('+', " "))?);
            if pairs.len() == PARAMETERS_MAX {
                return Err(S3Error::new(
                    S3Code::InvalidArgument,
                    "The query has too many parameters.",
                ));
            }
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(S3Error::argument(
                    &name,
                    &value,
                    "This parameter stands in the query twice.",
                ));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// The value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter, unless it is empty: S3 takes an empty one as none.
    pub fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// The names of all parameters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The headers of the request, with those that its URL carries as parameters.
    ///
    /// Some SDKs move `x-amz-*` headers into the query of a presigned URL, and S3 obeys them there. To overlook them
    /// would be to do something else than what was signed. Only checksums count for nothing there, as on S3: the JavaScript
    /// SDK signs that of an empty body into every such URL, whose body nobody has yet.
    ///
    /// # Errors
    /// `InvalidArgument` for one that stands in both, or is no header.
    pub fn headers<'a>(&self, headers: &'a HeaderMap) -> Result<Cow<'a, HeaderMap>, S3Error> {
        let mut all = Cow::Borrowed(headers);
        for (name, value) in &self.0 {
            let lower = name.to_ascii_lowercase();
            let counts = !OF_SIGNATURES.contains(&lower.as_str())
                && !OF_CHECKSUMS.iter().any(|start| lower.starts_with(start));
            if !lower.starts_with("x-amz-") || !counts {
                continue;
            }
            let refused = |why: &'static str| S3Error::argument(name, value, why);
            let no_header = "This parameter cannot be a header.";
            let header =
                HeaderName::from_bytes(lower.as_bytes()).map_err(|_| refused(no_header))?;
            let content =
                HeaderValue::from_bytes(value.as_bytes()).map_err(|_| refused(no_header))?;
            if all.contains_key(&header) {
                return Err(refused("This stands in the query and in the headers."));
            }
            all.to_mut().insert(header, content);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(raw: &str, name: &str) -> Option<String> {
        Query::parse(Some(raw)).unwrap().get(name).map(str::to_owned)
    }

    #[test]
    fn parameters_are_decoded_once() {
        assert_eq!(get("prefix=a%2Fb%252F&x", "prefix"), Some("a/b%2F".into()));
        assert_eq!(get("a+b=c+d%2B", "a b"), Some("c d+".into()));
        assert_eq!(get("uploads", "uploads"), Some(String::new()));
        assert_eq!(get("uploads=&&x=a=b", "x"), Some("a=b".into()));
        assert_eq!(Query::parse(None).unwrap(), Query::default());
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let code = |raw: &str| Query::parse(Some(raw)).unwrap_err().code;
        assert_eq!(code("prefix=a&prefix=b"), S3Code::InvalidArgument);
        assert_eq!(code("prefix=a&%70refix=b"), S3Code::InvalidArgument);
        for bad in ["a=%", "a=%4", "a=%zz", "%=a", "a=%ff"] {
            assert_eq!(code(bad), S3Code::InvalidUri, "{bad}");
        }
        let many =
            |count: usize| (0..count).map(|n| format!("p{n}=")).collect::<Vec<_>>().join("&");
        assert!(Query::parse(Some(&many(128))).is_ok());
        assert_eq!(code(&many(129)), S3Code::InvalidArgument);
    }

    #[test]
    fn a_presigned_url_carries_headers() {
        // As the JavaScript SDK signs it.
        let raw = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD&X-Amz-Credential=A%2F20261126\
                   &X-Amz-Date=20261126T095128Z&X-Amz-Expires=900&X-Amz-Signature=c1ae&X-Amz-SignedHeaders=host\
                   &x-amz-acl=private&x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-meta-foo=b%20r\
                   &x-amz-sdk-checksum-algorithm=CRC32&x-id=PutObject";
        let query = Query::parse(Some(raw)).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("h"));
        let all = query.headers(&headers).unwrap();
        let mut names: Vec<_> = all.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["host", "x-amz-acl", "x-amz-meta-foo"]);
        assert_eq!(all["x-amz-meta-foo"], "b r");
        headers.insert("x-amz-acl", HeaderValue::from_static("private"));
        assert_eq!(query.headers(&headers).unwrap_err().code, S3Code::InvalidArgument);
        for bad in ["x-amz-a%20b=c", "x-amz-a=%0d%0ab"] {
            let error = Query::parse(Some(bad)).unwrap().headers(&HeaderMap::new()).unwrap_err();
            assert_eq!(error.code, S3Code::InvalidArgument, "{bad}");
        }
    }

    #[test]
    fn without_such_parameters_the_headers_are_not_copied() {
        let query = Query::parse(Some("prefix=a&X-Amz-Expires=9")).unwrap();
        assert!(matches!(query.headers(&HeaderMap::new()).unwrap(), Cow::Borrowed(_)));
    }
}
