//! Audits of objects and binaries: what compilers recorded, compared with what is expected.
//!
//! Build systems nest and distributions add flags, so the requested flags and those that reach an
//! object can differ. Compilers record the flags they were given; this crate reads them.
//!
//! [`build_watched()`] reads the objects of a build, [`binary()`] a single file. Both return an
//! [`Audit`]: the [`Effective`] flags of each object, the [`Finding`]s against an [`Expected`], and
//! properties of the linked files. [`difference()`] compares two audits.
//!
//! The module `read` reads objects and binaries; checks and text output are pure functions.

mod audit;
mod binary;
mod check;
mod collect;
mod database;
mod difference;
mod effective;
mod error;
mod expected;
mod flags;
mod read;
pub mod text;
mod unrequested;

pub use audit::{
    Audit, Change, Component, Difference, Evidence, FileDifference, Finding, FlagSet, Location,
    ObjectRecord, Severity, SizeDifference, Unreadable, VERSION, from_json, is_current, to_json,
};
pub use binary::{
    Binary, BinaryKind, Code, Extension, ExtensionUse, Function, FunctionsFrom, Protections,
    Records, Relro, Sizes,
};
pub use collect::{FoundFiles, Progress, binary, build_watched, find_files};
pub use dbdyno_types::FlagCheck as Check;
pub use difference::difference;
pub use effective::{
    Effective, Family, Fortify, LtoForm, Optimization, Position, Profile, RecordedCompiler,
    StackProtector, UnknownWord,
};
pub use error::AuditError;
pub use expected::{Expected, ExpectedLto, ExpectedMarch, InvalidExpectation};
pub use unrequested::Unrequested;
