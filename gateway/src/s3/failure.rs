//! What went wrong, on its way out.

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use fence_core::ErrorCode;
use fencegate_s3::checksum::ChecksumError;
use fencegate_s3::code::{S3Code, S3Error};
use fencegate_s3::sign::SignError;
use fencegate_s3::sign::chunked::ChunkError;

use crate::engine::EngineError;
use crate::http::Problem;
use crate::http::mutants::{self, Mutant};

/// An error of S3, and the native problem behind it, if there is one. As a response it has no body yet: the outermost
/// layer, which knows the request's id, writes the XML.
#[derive(Debug, Clone)]
pub struct Failure(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    error: S3Error,
    /// Its headers go out, too: when to come back, which operation it was.
    problem: Option<Problem>,
    close: bool,
    operation: Option<&'static str>,
}

impl Failure {
    /// Of an operation, for its log line and metrics.
    pub fn of(mut self, operation: &'static str) -> Self {
        self.0.operation = Some(operation);
        self
    }

    /// The operation that it is of, if that was found out.
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation
    }

    /// What is told.
    pub fn error(&self) -> &S3Error {
        &self.0.error
    }

    /// The native code, for the log, or that of S3.
    pub fn code(&self) -> &'static str {
        match &self.0.problem {
            Some(problem) => problem.code().as_str(),
            None => self.0.error.code.as_str(),
        }
    }

    /// The resource that it is about, if that is known.
    pub fn resource(&self) -> Option<&str> {
        self.0.problem.as_ref().and_then(Problem::resource)
    }

    /// Whether the request may have taken effect or not.
    pub fn outcome_unknown(&self) -> bool {
        self.0.problem.as_ref().is_some_and(Problem::outcome_unknown)
    }

    /// The native problem, if it is one, or what it is natively that somebody is not let in.
    pub fn problem(&self) -> Option<Problem> {
        let not_let_in = || match self.0.error.code {
            S3Code::InvalidAccessKeyId | S3Code::SignatureDoesNotMatch => {
                let why = self.0.error.message.clone().into_owned();
                Some(Problem::new(ErrorCode::Unauthenticated, why))
            }
            _ => None,
        };
        self.0.problem.clone().or_else(not_let_in)
    }

    /// The same under another code of S3, with that code's own text.
    pub fn told_as(mut self, code: S3Code) -> Self {
        self.0.error = code.into();
        self
    }

    /// Closes the connection after the answer, since the rest of the body is not read.
    pub fn and_close(mut self) -> Self {
        self.0.close = true;
        self
    }

    /// The error alone.
    pub fn into_error(self) -> S3Error {
        self.0.error
    }
}

impl From<S3Error> for Failure {
    fn from(error: S3Error) -> Self {
        Self(Box::new(Inner { error, problem: None, close: false, operation: None }))
    }
}

impl From<S3Code> for Failure {
    fn from(code: S3Code) -> Self {
        S3Error::from(code).into()
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let error = match problem.code() {
            ErrorCode::FenceTokenStale if mutants::is(Mutant::StaleIsPrecondition) => {
                S3Code::PreconditionFailed.into()
            }
            code => S3Error::of(code, problem.detail().to_owned()),
        };
        Self(Box::new(Inner { error, problem: Some(problem), close: false, operation: None }))
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::PartsDiffer => S3Code::InvalidPart.into(),
            error => Problem::from(error).into(),
        }
    }
}

impl From<SignError> for Failure {
    fn from(error: SignError) -> Self {
        let code = match &error {
            SignError::MalformedHeader(_) => S3Code::AuthorizationHeaderMalformed,
            SignError::MalformedQuery(_) => S3Code::AuthorizationQueryParametersError,
            SignError::Ambiguous(_)
            | SignError::Twice(_)
            | SignError::BadHeader(_)
            | SignError::NotSupported(_) => S3Code::InvalidRequest,
            SignError::NotSigned(_) | SignError::Expired { .. } => S3Code::AccessDenied,
            SignError::NotThere(_) | SignError::DoesNotMatch => S3Code::SignatureDoesNotMatch,
            SignError::TooSkewed { .. } => S3Code::RequestTimeTooSkewed,
        };
        S3Error::new(code, sentence(&error)).into()
    }
}

impl From<ChunkError> for Failure {
    fn from(error: ChunkError) -> Self {
        let code = match &error {
            ChunkError::NoLength => S3Code::MissingContentLength,
            ChunkError::DoesNotMatch(_) => S3Code::SignatureDoesNotMatch,
            ChunkError::BadAnnouncement => S3Code::InvalidRequest,
            ChunkError::Trailers(_) => S3Code::MalformedTrailerError,
            ChunkError::Malformed(_)
            | ChunkError::WrongLength { .. }
            | ChunkError::Unfinished
            | ChunkError::AfterEnd => S3Code::IncompleteBody,
        };
        Self::from(S3Error::new(code, sentence(&error))).and_close()
    }
}

impl From<ChecksumError> for Failure {
    fn from(error: ChecksumError) -> Self {
        let code = match error {
            ChecksumError::MalformedMd5 => S3Code::InvalidDigest,
            _ => S3Code::InvalidRequest,
        };
        S3Error::new(code, sentence(&error)).into()
    }
}

/// As S3 words its messages.
fn sentence(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = match &self.0.problem {
            Some(problem) => problem.clone().into_response(),
            None => Response::default(),
        };
        response.extensions_mut().remove::<Problem>();
        *response.status_mut() = self.0.error.code.status();
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_TYPE);
        headers.remove(header::WWW_AUTHENTICATE);
        if self.0.close {
            close(headers);
        }
        response.extensions_mut().insert(self);
        response
    }
}

fn close(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
}

/// What an object is to the reader that is not there, or was never written.
pub fn is_absent(error: &EngineError) -> bool {
    matches!(error.code(), ErrorCode::ObjectNotFound | ErrorCode::ResourceNotFound)
}
