//! Compilation units of objects and archives, from all that compilers record.

use std::path::{Path, PathBuf};

use dbdyno_units::Bytes;
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

use super::{bitcode, code, dwarf, map, switches};
use crate::audit::Evidence;
use crate::binary::Code;
use crate::database::is_assembly;
use crate::effective::{
    Effective, Family, Fortify, LtoForm, Machine, Profile, RecordedCompiler, StackProtector,
};
use crate::error::ReadError;
use crate::flags::{CommandContext, Producer, interpret};

#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    pub(crate) member: Option<String>,
    /// Its size in bytes, to distinguish members with the same name.
    pub(crate) bytes: u64,
    pub(crate) source: Option<String>,
    pub(crate) directory: Option<String>,
    /// The command line as recorded.
    pub(crate) flags: Option<Vec<String>>,
    pub(crate) effective: Effective,
    pub(crate) evidence: Vec<Evidence>,
    /// The size of its machine code; `None` if it cannot be attributed to one unit.
    pub(crate) text: Option<Bytes>,
    /// Read only if no command line is recorded.
    pub(crate) code: Option<Code>,
    /// The file with its command line, which does not exist.
    pub(crate) missing: Option<PathBuf>,
}

/// Reads the units of an object, or of all members of an archive. Also returns the errors of
/// unreadable members.
pub(crate) fn objects(path: &Path, data: &[u8]) -> Result<(Vec<Unit>, Vec<ReadError>), ReadError> {
    if !data.starts_with(b"!<") {
        return object(path, data).map(|units| (units, Vec::new()));
    }
    let archive = ArchiveFile::parse(data)?;
    let (mut units, mut broken) = (Vec::new(), Vec::new());
    for member in archive.members() {
        let member = match member {
            Ok(member) => member,
            // After a broken member, the offset of the next one is unknown.
            Err(error) => {
                broken.push(ReadError(format!("truncated archive: {error}")));
                break;
            }
        };
        let name = super::name(member.name());
        // A thin archive contains only names of files, which are read by themselves.
        if member.is_thin() {
            continue;
        }
        let content = member.data(data).map_err(ReadError::from);
        match content.and_then(|data| member_object(path, data)) {
            Ok(found) => units.extend(found.into_iter().map(|unit| Unit {
                member: Some(name.clone()),
                bytes: member.size(),
                ..unit
            })),
            Err(error) => broken.push(ReadError(format!("member {name}: {error}"))),
        }
    }
    Ok((units, broken))
}

/// Archives also contain other files, such as a symbol table or module descriptions.
fn member_object(path: &Path, data: &[u8]) -> Result<Vec<Unit>, ReadError> {
    if bitcode::is_bitcode(data) || data.starts_with(b"\x7FELF") {
        object(path, data)
    } else {
        Ok(Vec::new())
    }
}

/// The files that a thin archive names, relative to its directory; none of a damaged one.
pub(crate) fn thin_members(path: &Path) -> Vec<PathBuf> {
    let Ok(Some(data)) = map(path) else { return Vec::new() };
    let Ok(archive) = ArchiveFile::parse(&*data) else { return Vec::new() };
    let directory = path.parent().unwrap_or(Path::new(""));
    let members = archive.members().map_while(Result::ok).filter(|member| member.is_thin());
    members.map(|member| directory.join(super::name(member.name()))).collect()
}

fn object(path: &Path, data: &[u8]) -> Result<Vec<Unit>, ReadError> {
    if bitcode::is_bitcode(data) {
        let module =
            bitcode::module(data).ok_or_else(|| ReadError("invalid bitcode".to_owned()))?;
        return Ok(vec![of_module(module)]);
    }
    let file = object::File::parse(data)?;
    of_object(path, &file)
}

fn of_module(module: bitcode::Module) -> Unit {
    let flags = module.producer.as_ref().and_then(|producer| producer.flags.clone());
    let mut evidence = vec![Evidence::Bitcode];
    let mut effective = module.effective;
    if let (Some(producer), Some(flags)) = (&module.producer, &flags) {
        evidence.push(Evidence::CommandLine);
        let context = CommandContext {
            compiler: Some(&producer.compiler),
            language: None,
            machine: Machine::X86,
            macros: true,
        };
        let recorded = interpret(context, flags);
        effective = Effective {
            lto: effective.lto,
            // For `native` in the command line, the attributes have the CPU's name.
            march: effective.march.or(recorded.march.clone()),
            frame_pointers: effective.frame_pointers.or(recorded.frame_pointers),
            stack_protector: recorded.stack_protector.or(effective.stack_protector),
            ..recorded
        };
    }
    Unit { source: module.source, flags, effective, evidence, ..Unit::default() }
}

/// The units of an ELF object: usually one, or several after `ld -r`.
fn of_object(path: &Path, file: &object::File<'_>) -> Result<Vec<Unit>, ReadError> {
    let machine = Machine::of(file);
    if is_split_debug_information(file) {
        return Ok(Vec::new());
    }
    let comments = switches::comments(file)?;
    let signs = Signs::of(file);
    let gnu_lto = switches::gnu_lto(file);
    let lto = match &gnu_lto {
        Some((form, _)) => *form,
        // LLVM bitcode in addition to machine code.
        None if file.section_by_name(".llvm.lto").is_some() => LtoForm::Fat,
        None => LtoForm::None,
    };
    let mut units: Vec<Unit> = Vec::new();
    units.extend(dwarf::units(file, path)?.into_iter().map(|found| of_debug(found, machine)));
    if units.iter().all(|unit| unit.flags.is_none()) {
        let lines = switches::command_lines(file, &comments)?;
        // The section has one line per unit, or one for all.
        for (index, producer) in lines.iter().enumerate() {
            let other = recorded(producer, machine, Evidence::CommandLine);
            match units.get_mut(index) {
                Some(unit) => unit.adopt(other),
                None => units.push(other),
            }
        }
    }
    if units.is_empty() {
        units.push(Unit::default());
    }
    if let Some((_, Some(options))) = gnu_lto {
        for unit in units.iter_mut().filter(|unit| unit.flags.is_none()) {
            let compiler = switches::compiler(&comments);
            let producer = compiler.map(|compiler| Producer {
                compiler,
                language: None,
                flags: Some(options.clone()),
            });
            if let Some(producer) = producer {
                unit.adopt(recorded(&producer, machine, Evidence::LtoOptions));
            }
        }
    }
    let text = Bytes::from_bytes(
        file.sections()
            .filter(|section| section.kind() == SectionKind::Text)
            .map(|section| section.size())
            .fold(0, u64::saturating_add),
    );
    let alone = units.len() == 1;
    if alone
        && units[0].evidence.is_empty()
        && lto == LtoForm::None
        && text > Bytes::default()
        && switches::compiler(&comments).is_none()
        && !names_compiled_source(file)
    {
        units[0].take_as_assembled();
    }
    for unit in &mut units {
        let effective = &mut unit.effective;
        if effective.compiler.is_none() {
            effective.compiler = switches::compiler(&comments);
        }
        if effective.is_checked() && effective.lto != Some(LtoForm::Linked) {
            effective.lto = Some(lto);
        }
        if !alone && unit.flags.is_some() {
            unit.effective.stack_protector.get_or_insert(StackProtector::Off);
        }
        if alone {
            fill_by_signs(unit, &signs);
            unit.text = Some(text);
        }
    }
    if alone && units[0].flags.is_none() && units[0].effective.is_checked() {
        let unit = &mut units[0];
        unit.code = code::scan(file);
        unit.evidence.push(Evidence::Code);
        if unit.effective.frame_pointers.is_none() {
            unit.effective.frame_pointers = unit.code.as_ref().and_then(Code::frame_pointers);
        }
    }
    Ok(units)
}

/// A unit from its debug information.
pub(super) fn of_debug(found: dwarf::DebugUnit, machine: Machine) -> Unit {
    let unit = match found.producer {
        Ok(producer) => recorded(&producer, machine, Evidence::Debug),
        Err(missing) => Unit { missing: Some(missing), ..Unit::default() },
    };
    Unit { source: found.source, directory: found.directory, ..unit }
}

/// Whether it has only the part of another object's debug information that is not linked
/// (`-gsplit-dwarf`).
fn is_split_debug_information(file: &object::File<'_>) -> bool {
    file.section_by_name(".debug_info.dwo").is_some()
        && !file.sections().any(|section| section.kind() == SectionKind::Text)
}

/// Whether its symbols name a source file that is not assembly language. Compilers write the name;
/// assemblers do not, unless the source tells them to.
fn names_compiled_source(file: &object::File<'_>) -> bool {
    file.symbols().filter(|symbol| symbol.kind() == SymbolKind::File).any(|symbol| {
        let name = symbol.name_bytes().map(String::from_utf8_lossy);
        name.is_ok_and(|name| !is_assembly(Path::new(&*name)))
    })
}

impl Unit {
    /// Sets the compiler to an assembler, whose objects have none of the other settings.
    pub(crate) fn take_as_assembled(&mut self) {
        let compiler = RecordedCompiler { family: Family::Assembler, version: String::new() };
        self.effective = Effective { compiler: Some(compiler), ..Effective::default() };
        self.evidence.retain(|evidence| *evidence != Evidence::Code);
        self.code = None;
    }

    /// Replaces flags and settings with those of another record of the same unit.
    fn adopt(&mut self, other: Self) {
        self.flags = other.flags;
        self.effective = other.effective;
        self.evidence.extend(other.evidence);
    }
}

/// A unit from a recorded producer.
pub(super) fn recorded(producer: &Producer, machine: Machine, evidence: Evidence) -> Unit {
    let compiler = &producer.compiler;
    let effective = match &producer.flags {
        Some(flags) => {
            let context = CommandContext {
                compiler: Some(compiler),
                language: producer.language.as_deref(),
                machine,
                macros: compiler.family == Family::Clang,
            };
            interpret(context, flags)
        }
        None => Effective {
            compiler: Some(compiler.clone()),
            language: producer.language.clone(),
            ..Effective::default()
        },
    };
    Unit { flags: producer.flags.clone(), effective, evidence: vec![evidence], ..Unit::default() }
}

/// Adds what is known from called functions to the recorded settings.
pub(super) fn fill_by_signs(unit: &mut Unit, signs: &Signs) {
    if !unit.effective.is_checked() {
        return;
    }
    // A slim object has no machine code yet, so calls show nothing.
    let has_code = !matches!(unit.effective.lto, Some(LtoForm::Slim | LtoForm::Thin));
    let recorded = unit.flags.is_some();
    let effective = &mut unit.effective;
    let mut used = false;
    if effective.stack_protector.is_none() {
        if signs.stack_protector {
            effective.stack_protector = Some(StackProtector::Some);
            used = true;
        } else if recorded {
            effective.stack_protector = Some(StackProtector::Off);
        }
    }
    if has_code && !signs.fortified.is_empty() && effective.fortify.is_none() {
        effective.fortify = Some(Fortify::On);
        used = true;
    }
    if signs.assertions && effective.assertions != Some(true) {
        effective.assertions = Some(true);
        used = true;
    }
    if signs.instrumented && effective.profile.is_none_or(|profile| profile == Profile::None) {
        effective.profile = Some(Profile::Generate);
        used = true;
    }
    if used {
        unit.evidence.push(Evidence::Symbols);
    }
}

/// The source file of a unit with its directory, without `.` and `..`.
pub(crate) fn full_source(unit: &Unit) -> Option<String> {
    let source = unit.source.as_ref()?;
    let path = match &unit.directory {
        Some(directory) => Path::new(directory).join(source),
        None => Path::new(source).to_owned(),
    };
    Some(crate::database::clean(&path).to_string_lossy().into_owned())
}

/// Properties that the undefined symbols of an object show, mainly the functions that it calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// Whether the stack protector's handler is called.
    pub(super) stack_protector: bool,
    /// Called C library functions with bounds checks.
    pub(super) fortified: Vec<String>,
    /// Whether the handler of failed assertions is called.
    pub(super) assertions: bool,
    /// Whether `ExceptionalCondition` is called: by PostgreSQL's assertions, and by `pg_re_throw`.
    postgresql_assertion: bool,
    /// Whether it is instrumented to collect a profile.
    pub(super) instrumented: bool,
}

/// The C library's handlers of failed assertions.
const ASSERTIONS: [&str; 3] = ["__assert_fail", "__assert", "__assert_perror_fail"];

/// The handler of PostgreSQL's failed assertions, and the only function that calls it in builds
/// without assertions.
const POSTGRESQL_ASSERTION: &str = "ExceptionalCondition";
const POSTGRESQL_THROW: &str = "pg_re_throw";

/// Names that end like those of checked functions but are also used without `_FORTIFY_SOURCE`.
const NOT_FORTIFIED: [&str; 2] = ["__stack_chk_fail", "__chk_fail"];

impl Signs {
    pub(super) fn of(file: &object::File<'_>) -> Self {
        let mut signs = Self::default();
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if symbol.is_undefined()
                && let Ok(name) = symbol.name()
            {
                signs.note(name, symbol.is_weak());
            }
        }
        let mut throws = false;
        for symbol in file.symbols().filter(ObjectSymbol::is_definition) {
            let Ok(name) = symbol.name() else { continue };
            // The counters are defined in the object itself.
            signs.instrumented |= name.starts_with("__llvm_prf") || name.starts_with("__profc_");
            throws |= name == POSTGRESQL_THROW;
        }
        signs.assertions |= signs.postgresql_assertion && !throws;
        signs.fortified.sort();
        signs.fortified.dedup();
        signs
    }

    fn note(&mut self, name: &str, weak: bool) {
        // The version of a dynamic symbol follows an @.
        let name = name.split('@').next().unwrap_or(name);
        if name.starts_with("__stack_chk_fail") {
            self.stack_protector = true;
        } else if name.starts_with("__") && name.ends_with("_chk") && !NOT_FORTIFIED.contains(&name)
        {
            self.fortified.push(name.to_owned());
        } else if ASSERTIONS.contains(&name) {
            self.assertions = true;
        } else if name == POSTGRESQL_ASSERTION {
            self.postgresql_assertion = true;
        } else if name.starts_with("__gcov_") || name.starts_with("__llvm_profile_") {
            // Instrumented code needs them. A weak reference is that of code which writes the counts of
            // others before it aborts, as Abseil's log does.
            self.instrumented |= !weak;
        }
    }
}
