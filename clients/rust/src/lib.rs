//! Client of Fencegate.
