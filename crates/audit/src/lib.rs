//! What compilers recorded in objects and binaries, checked against what was expected.
//!
//! A build wraps other builds, distributions add flags of their own, and nobody reads the logs:
//! what was asked for and what reached an object differ. Compilers write down what they did; this
//! crate reads it.
//!
//! [`build()`] reads the objects of a build, [`binary()`] a file that nobody knows more about. Both
//! give an [`Audit`]: for each object the [`Effective`] flags, the [`Finding`]s against an
//! [`Expected`], and facts of the linked files. [`difference()`] lays two audits side by side.
//!
//! Reading is apart from judging: `read` gives what is in the files, and everything else is pure.

mod audit;
mod binary;
mod check;
mod code;
mod components;
mod database;
mod difference;
mod effective;
mod error;
mod expected;
mod flags;
mod paths;
mod read;
mod record;
mod stored;
pub mod text;
pub mod walk;

pub use audit::{Audit, Progress, Unreadable, binary, build, build_watched};
pub use binary::{Binary, BinaryKind, Protections, Records, Relro, Sizes};
pub use check::{Finding, Location, Severity};
pub use code::{Code, Extension, ExtensionUse, Function, FunctionsFrom};
pub use components::Component;
pub use dbdyno_record::FlagCheck as Check;
pub use difference::{Change, Difference, FileDifference, SizeDifference, difference};
pub use effective::{
    Effective, Family, Fortify, LtoForm, Optimization, Position, Profile, RecordedCompiler,
    StackProtector, UnknownWord,
};
pub use error::AuditError;
pub use expected::{Expected, ExpectedLto, ExpectedMarch, InvalidExpectation};
pub use record::{Evidence, FlagSet, ObjectRecord};
pub use stored::{InvalidAudit, VERSION, from_json, to_json};
