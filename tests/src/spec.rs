//! The committed `openapi.yaml` as a judge: every answer must have a path, method, status, content
//! type, headers and body that it declares.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use jsonschema::Validator;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::{Map, Value, json};

/// The contract.
#[derive(Debug)]
pub struct Spec {
    document: Value,
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

impl Spec {
    /// The committed contract, read once.
    pub fn get() -> &'static Self {
        static SPEC: OnceLock<Spec> = OnceLock::new();
        SPEC.get_or_init(|| {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../openapi.yaml");
            let text = std::fs::read_to_string(file)
                .expect("openapi.yaml is missing: print it with `fencegate openapi`");
            Self::parse(&text)
        })
    }

    /// Reads a contract.
    pub fn parse(text: &str) -> Self {
        let document = yaml_serde::from_str(text).expect("openapi.yaml is YAML");
        Self { document, validators: Mutex::default() }
    }

    /// The document itself.
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// The names of all operations.
    pub fn operations(&self) -> Vec<String> {
        let paths = self.document["paths"].as_object().into_iter().flat_map(|paths| paths.values());
        let calls = paths.flat_map(|path| path.as_object().into_iter().flat_map(|it| it.values()));
        let names = calls.filter_map(|call| call["operationId"].as_str());
        names.map(str::to_owned).collect()
    }

    /// Panics unless the answer is one that the contract declares. `path` is as sent, without
    /// the query.
    pub fn check(&self, method: &str, path: &str, status: u16, headers: &HeaderMap, body: &[u8]) {
        if let Err(why) = self.try_check(method, path, status, headers, body) {
            let body = String::from_utf8_lossy(&body[..body.len().min(2000)]);
            panic!("openapi.yaml: {method} {path} -> {status}: {why}\n{headers:#?}\n{body}");
        }
    }

    /// As [`Spec::check`], with the reason as a value.
    pub fn try_check(
        &self,
        method: &str,
        path: &str,
        status: u16,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(), String> {
        let template = self.template_of(path).ok_or("no such path")?;
        let operation = &self.document["paths"][&template][method.to_ascii_lowercase()];
        if operation.is_null() {
            return Err(format!("{template} has no such method"));
        }
        let response = self.response_of(operation, status)?;
        self.check_headers(response, headers)?;
        if method.eq_ignore_ascii_case("HEAD") || status == 304 {
            return if body.is_empty() { Ok(()) } else { Err("it must have no body".to_owned()) };
        }
        let content = response["content"].as_object().filter(|types| !types.is_empty());
        let Some(content) = content else {
            return if body.is_empty() { Ok(()) } else { Err("no body is declared".to_owned()) };
        };
        let sent = headers.get(CONTENT_TYPE).ok_or("it has no content type")?;
        let sent = sent.to_str().map_err(|_| "its content type is not text")?;
        let essence = sent.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let media = content
            .get(&essence)
            .or_else(|| content.get("*/*"))
            .or_else(|| {
                content.get("application/octet-stream").filter(|_| path_has_bytes(&template))
            })
            .ok_or_else(|| format!("the content type {essence} is not declared"))?;
        if essence != "application/json" && !essence.ends_with("+json") {
            return Ok(());
        }
        if content.get(&essence).is_none() {
            // An object of a user that happens to be JSON.
            return Ok(());
        }
        let value = serde_json::from_slice(body).map_err(|error| format!("not JSON: {error}"))?;
        let name = format!("{template} {method} {status} {essence}");
        let validator = self.validator(&name, &media["schema"]);
        let errors: Vec<_> = validator
            .iter_errors(&value)
            .map(|error| format!("{} at {:?}", error, error.instance_path().to_string()))
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }

    /// Panics unless the value is what the schema of this name describes.
    pub fn check_schema(&self, name: &str, value: &Value) {
        let reference = json!({ "$ref": format!("#/components/schemas/{name}") });
        let validator = self.validator(name, &reference);
        let errors: Vec<_> = validator.iter_errors(value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "not a {name}: {}: {value}", errors.join("; "));
    }

    /// The template that a path matches: of several the one with the most literal segments. A
    /// last parameter named `key`, `path` or `*...` takes all the rest of the path.
    fn template_of(&self, path: &str) -> Option<String> {
        let segments: Vec<_> = path.split('/').collect();
        self.document["paths"]
            .as_object()?
            .keys()
            .filter_map(|template| Some((literals(template, &segments)?, template)))
            .max_by_key(|(literals, _)| *literals)
            .map(|(_, template)| template.clone())
    }

    fn response_of<'a>(&'a self, operation: &'a Value, status: u16) -> Result<&'a Value, String> {
        let responses = &operation["responses"];
        let class = format!("{}XX", status / 100);
        [status.to_string().as_str(), &class, "default"]
            .iter()
            .map(|name| &responses[*name])
            .find(|response| !response.is_null())
            .map(|response| self.resolve(response))
            .ok_or_else(|| "the status is not declared".to_owned())
    }

    fn check_headers(&self, response: &Value, headers: &HeaderMap) -> Result<(), String> {
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            let required = self.resolve(header)["required"] == json!(true);
            if required && !headers.contains_key(name.as_str()) {
                return Err(format!("the header {name} is missing"));
            }
        }
        Ok(())
    }

    /// Follows a `$ref` inside the document.
    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            None => value,
            Some(reference) => reference
                .strip_prefix('#')
                .and_then(|pointer| self.document.pointer(pointer))
                .unwrap_or_else(|| panic!("openapi.yaml: {reference} leads nowhere")),
        }
    }

    fn validator(&self, name: &str, schema: &Value) -> Arc<Validator> {
        let mut validators = self.validators.lock().expect("no panic while the lock is held");
        let validator = validators.entry(name.to_owned()).or_insert_with(|| {
            // References such as `#/components/schemas/Lock` are resolved inside this document. Each schema in it costs
            // time, and most calls need few of them.
            let mut schemas = Map::new();
            self.add_schemas(schema, &mut schemas);
            let schema = json!({ "allOf": [schema], "components": { "schemas": schemas } });
            let validator = jsonschema::draft202012::options()
                .should_validate_formats(true)
                .build(&schema)
                .unwrap_or_else(|error| panic!("openapi.yaml: the schema of {name}: {error}"));
            Arc::new(validator)
        });
        Arc::clone(validator)
    }

    /// Adds the schemas that this one refers to, and those that they refer to.
    fn add_schemas(&self, schema: &Value, schemas: &mut Map<String, Value>) {
        match schema {
            Value::Object(members) => {
                let name = members.get("$ref").and_then(Value::as_str);
                let name = name.and_then(|it| it.strip_prefix("#/components/schemas/"));
                if let Some(name) = name.filter(|name| !schemas.contains_key(*name)) {
                    let found = &self.document["components"]["schemas"][name];
                    schemas.insert(name.to_owned(), found.clone());
                    self.add_schemas(found, schemas);
                }
                members.values().for_each(|member| self.add_schemas(member, schemas));
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_schemas(item, schemas)),
            _ => {}
        }
    }
}

/// How many segments of the path are literal in the template; `None` if it does not match.
fn literals(template: &str, segments: &[&str]) -> Option<usize> {
    let pattern: Vec<_> = template.split('/').collect();
    let last = pattern.last().copied().unwrap_or_default();
    let rest = ["{key}", "{path}"].contains(&last) || last.starts_with("{*");
    let fits = if rest { segments.len() >= pattern.len() } else { segments.len() == pattern.len() };
    if !fits {
        return None;
    }
    let mut literals = 0;
    for (part, segment) in pattern.iter().zip(segments) {
        if part.starts_with('{') {
            if segment.is_empty() {
                return None;
            }
        } else if part == segment {
            literals += 1;
        } else {
            return None;
        }
    }
    Some(literals)
}

/// Whether a path's bodies are bytes of users, with content types of their choice.
fn path_has_bytes(template: &str) -> bool {
    template.contains("/objects/") || template.starts_with("/upstreams/")
}
