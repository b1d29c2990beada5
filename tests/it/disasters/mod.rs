//! Servers that fail, stop, lose commits or are restored, and what keeps the promise then.

pub mod adoption;
pub mod backup;
pub mod cut_connections;
pub mod epoch_switch;
pub mod etcd_access;
pub mod failing_disk;
pub mod full;
pub mod kill9;
pub mod lost_commits;
pub mod outages;
pub mod refence;
pub mod restores;
pub mod scrub;
pub mod scrub_restored;
pub mod standby_waits;
