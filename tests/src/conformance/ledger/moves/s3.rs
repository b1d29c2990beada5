//! What S3 asks of a ledger, at random: uploads in parts and their ends, lists, and keys of the three spaces.

use fence_core::ports::{
    AbortItem, BlobId, Effect, KeySpace, ListingPage, Multipart, PartItem, Payload, UploadItem,
};

use super::super::build::{digest, key, name, token};
use super::{KEYS, Move, Mover, OBJECTS, RESOURCES, Standing};

/// The bucket of the first two resources, if a key names its resource by one segment; else of the first alone.
const BUCKET: &str = RESOURCES[0];
/// The most parts of an upload.
const PARTS: i32 = 3;
/// What S3 tells of an object, perhaps.
const ABOUT: [Option<&str>; 3] = [None, Some("{}"), Some("{\"n\":1}")];

impl Mover {
    /// One of these moves.
    pub(super) fn of_s3(&mut self, standing: &Standing) -> Move {
        match self.below(10) {
            0 => self.begin_in_parts(standing),
            1 => self.late_part(standing),
            2..7 => Move::PutPart(self.part(standing)),
            7 => Move::Abort(self.abort(standing)),
            _ => Move::List(self.page()),
        }
    }

    fn begin_in_parts(&mut self, standing: &Standing) -> Move {
        let upload = BlobId(self.id());
        self.uploads.push(upload);
        let item = UploadItem { blob: Some(upload), key: None, ..self.upload(standing) };
        let becomes = self.becomes(&item);
        Move::BeginInParts(item, becomes)
    }

    /// The begin of an upload, and what comes next: of two parts under one number the one that was begun first comes
    /// last, as when its statement was on its way for long. Then perhaps the upload's end. Left to chance, that hardly
    /// ever happens.
    fn late_part(&mut self, standing: &Standing) -> Move {
        let begin = self.begin_in_parts(standing);
        let Move::BeginInParts(item, _) = &begin else { return begin };
        let Some(upload) = item.blob else { return begin };
        let (resource, token) = (item.resource.clone(), item.token);
        let part = PartItem { upload, resource, token, lock: None, ..self.part(standing) };
        let mut blob = || {
            let id = BlobId(self.id());
            self.blobs.push(id);
            self.parts.push((upload, part.number, id));
            id
        };
        let (early, late) = (blob(), blob());
        let opened = |blob| {
            let item = UploadItem { blob: Some(blob), key: None, ..item.clone() };
            Move::Upload(item)
        };
        let put = |blob| Move::PutPart(PartItem { blob, ..part.clone() });
        self.planned = [opened(early), opened(late), put(late), put(early)].into();
        if self.chance(40) {
            let (resource, token) = (item.resource.clone(), item.token);
            let end = AbortItem { upload, resource, token, ..self.abort(standing) };
            self.planned.push_back(Move::Abort(end));
        }
        begin
    }

    fn becomes(&mut self, item: &UploadItem) -> Multipart {
        Multipart {
            resource: item.resource.clone(),
            key: key(self.one_of(&OBJECTS)),
            content_type: "video/x".into(),
            about: self.about(),
            principal: item.by.principal().cloned(),
        }
    }

    /// What S3 tells of an object.
    pub(super) fn about(&mut self) -> Option<std::sync::Arc<str>> {
        self.one_of(&ABOUT).map(Into::into)
    }

    fn part(&mut self, standing: &Standing) -> PartItem {
        let upload = self.recent(|mover| &mover.uploads, 3).unwrap_or(BlobId(self.id()));
        // Often one that was put before, as when the answer was lost.
        let again = self.recent(|mover| &mover.parts, 6).filter(|_| self.chance(15));
        let blob = self.recent(|mover| &mover.blobs, 6).unwrap_or(upload);
        let number = 1 + self.rng_below(PARTS);
        let (upload, number, blob) = again.unwrap_or((upload, number, blob));
        self.parts.push((upload, number, blob));
        let resource = self.below(4);
        PartItem {
            upload,
            resource: name(RESOURCES[resource]),
            token: token(self.token(standing, resource)),
            lock: self.chance(15).then(|| self.lock(95)),
            by: self.by(),
            number,
            blob,
            size: i64::from(number) * 7,
            sha256: digest(blob.0.as_bytes()),
            checksum: self.chance(50).then(|| "crc32 abc".to_owned()),
        }
    }

    fn rng_below(&mut self, end: i32) -> i32 {
        i32::try_from(self.below(usize::try_from(end).unwrap_or(1))).unwrap_or(0)
    }

    fn abort(&mut self, standing: &Standing) -> AbortItem {
        let upload = self.recent(|mover| &mover.uploads, 4).unwrap_or(BlobId(self.id()));
        let resource = self.below(4);
        AbortItem {
            upload,
            resource: name(RESOURCES[resource]),
            token: token(self.token(standing, resource)),
            lock: self.chance(15).then(|| self.lock(95)),
            by: self.by(),
        }
    }

    fn page(&mut self) -> ListingPage {
        let depth = u8::from(self.chance(50));
        ListingPage {
            bucket: BUCKET.to_owned(),
            depth,
            prefix: self.one_of(&["", "", "k", "k/", "b/", "b/k"]).to_owned(),
            delimiter: self.chance(40).then(|| "/".to_owned()),
            from: self.one_of(&["", "", "b/k", "j", "k\u{1}"]).to_owned(),
            limit: 1 + self.below(4),
        }
    }

    /// A put that completes an upload with what was put last under each number, or before.
    pub(super) fn completion(&mut self, object: &str) -> Option<Effect> {
        let upload = self.recent(|mover| &mover.uploads, 3)?;
        let mut named: Vec<BlobId> = Vec::new();
        for wanted in 1..=PARTS {
            let of_it = |&(of, number, blob): &(BlobId, i32, BlobId)| {
                (of == upload && number == wanted).then_some(blob)
            };
            let all: Vec<BlobId> = self.parts.iter().filter_map(of_it).collect();
            let back = usize::from(all.len() > 1 && self.chance(10));
            let blob = all.iter().rev().nth(back).copied();
            named.extend(blob.filter(|blob| !named.contains(blob)).filter(|_| self.chance(90)));
        }
        if named.is_empty() {
            return None;
        }
        Some(Effect::Put {
            key: key(object),
            content_type: "video/x".into(),
            payload: Payload::Blob(upload),
            size: 7 * named.len() as i64,
            sha256: digest(upload.0.as_bytes()),
            about: self.about(),
            parts: Some(named.into()),
        })
    }

    /// A key of one of the spaces.
    pub(super) fn key_text(&mut self) -> String {
        let space = match self.below(5) {
            0 => KeySpace::Sdk,
            1 => KeySpace::Upload,
            _ => KeySpace::Native,
        };
        space.key(self.one_of(&KEYS))
    }

    /// The uploads in parts of the run.
    pub fn uploads(&self) -> &[BlobId] {
        &self.uploads
    }
}
