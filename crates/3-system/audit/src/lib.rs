//! Audits of objects and binaries: what compilers recorded, compared with what is expected.
//!
//! Build systems nest and distributions add flags, so the requested flags and those that reach an
//! object can differ. Compilers record the flags they were given; this crate reads them.
//!
//! [`build()`] reads the objects of a build, [`binary()`] a single file. Both return an [`Audit`]:
//! the [`Effective`] flags of each object, the [`Finding`]s against an [`Expected`], and properties
//! of the linked files. [`difference()`] compares two audits.
//!
//! The module `read` reads objects and binaries; checks and text output are pure functions.

mod audit;
mod binary;
mod check;
mod code;
mod collect;
mod components;
mod database;
mod difference;
mod effective;
mod error;
mod expected;
mod finding;
mod flags;
mod machine;
mod paths;
mod read;
mod record;
mod stored;
pub mod text;
pub mod walk;
mod words;

pub use audit::{Audit, Unreadable};
pub use binary::{Binary, BinaryKind, Protections, Records, Relro, Sizes};
pub use code::{Code, Extension, ExtensionUse, Function, FunctionsFrom};
pub use collect::{Progress, binary, build, build_watched};
pub use components::Component;
pub use dbdyno_types::FlagCheck as Check;
pub use difference::{Change, Difference, FileDifference, SizeDifference, difference};
pub use effective::{
    Effective, Family, Fortify, LtoForm, Optimization, Position, Profile, RecordedCompiler,
    StackProtector,
};
pub use error::{AuditError, DatabaseError, ReadError};
pub use expected::{Expected, ExpectedLto, ExpectedMarch, InvalidExpectation};
pub use finding::{Finding, Location, Severity};
pub use record::{Evidence, FlagSet, ObjectRecord};
pub use stored::{InvalidAudit, VERSION, from_json, is_current, to_json};
pub use words::UnknownWord;
