use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::Contents;
use crate::audit::{Audit, Evidence, FlagSet, ObjectRecord, Unreadable};
use crate::binary::Binary;
use crate::database::{CompileCommand, Database, clean, component};
use crate::effective::Machine;
use crate::error::ReadError;
use crate::flags::{CommandContext, has_meaning, interpret, normal};
use crate::read::{Unit, full_source};

/// Collects the contents of all files and builds the audit.
pub(super) struct Assembly<'a> {
    root: PathBuf,
    /// The canonical root, as in the compile database.
    real_root: PathBuf,
    database: Option<&'a Database>,
    objects: Vec<(PathBuf, Unit)>,
    linked: Vec<(PathBuf, Unit)>,
    binaries: Vec<Binary>,
    unreadable: Vec<Unreadable>,
}

impl<'a> Assembly<'a> {
    pub(super) fn new(root: &Path, database: Option<&'a Database>) -> Self {
        Self {
            root: clean(root),
            real_root: root.canonicalize().unwrap_or_else(|_| root.to_owned()),
            database,
            objects: Vec::new(),
            linked: Vec::new(),
            binaries: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, path: &Path, contents: Contents) {
        let name = self.relative(path);
        match contents {
            Contents::Objects(units, broken) => {
                self.objects.extend(units.into_iter().map(|unit| (name.clone(), unit)));
                broken.iter().for_each(|error| self.unreadable(path, error));
            }
            Contents::Linked(linked) => {
                self.binaries.push(Binary { path: name.clone(), ..linked.binary });
                self.linked.extend(linked.units.into_iter().map(|unit| (name.clone(), unit)));
            }
        }
    }

    pub(super) fn unreadable(&mut self, path: &Path, error: &ReadError) {
        self.unreadable.push(Unreadable { path: self.relative(path), reason: error.to_string() });
    }

    fn relative(&self, path: &Path) -> PathBuf {
        let path = clean(path);
        path.strip_prefix(&self.root).map(Path::to_owned).unwrap_or(path)
    }

    pub(super) fn audit(self) -> Audit {
        let Self { root, real_root, database, mut objects, linked, binaries, unreadable } = self;
        leave_out_copies(&mut objects);
        let units = if objects.is_empty() { linked } else { objects };
        let sources = SourceRoot::of(&units);
        let mut sets = Sets::default();
        let records = units
            .into_iter()
            .map(|(file, unit)| {
                let source = full_source(&unit);
                let requested = database.and_then(|database| {
                    let member = unit.member.as_deref();
                    let index = database.find(&real_root.join(&file), member, source.as_deref())?;
                    Some(database.command(index))
                });
                record(file, unit, source, requested, &sources, &mut sets)
            })
            .collect();
        // `.` is empty after it was cleaned.
        let root = if root.as_os_str().is_empty() { PathBuf::from(".") } else { root };
        Audit {
            root,
            expected: crate::Expected::default(),
            objects: records,
            flag_sets: sets.sets,
            binaries,
            findings: Vec::new(),
            unreadable,
            compile_commands: database.map(Database::len),
        }
    }
}

fn record(
    file: PathBuf,
    mut unit: Unit,
    source: Option<String>,
    requested: Option<&CompileCommand>,
    sources: &SourceRoot,
    sets: &mut Sets,
) -> ObjectRecord {
    if unit.effective.compiler.is_none() && requested.is_some_and(CompileCommand::is_assembly) {
        unit.take_as_assembled();
    }
    let mut effective = unit.effective;
    let mut evidence = unit.evidence;
    if let Some(requested) = requested {
        let context = CommandContext {
            compiler: effective.compiler.as_ref(),
            language: None,
            machine: Machine::default(),
            macros: true,
        };
        let intended = interpret(context, &normal(&requested.flags));
        // gcc records no macros, so the requested ones are the best information available.
        effective.assertions = effective.assertions.or(intended.assertions);
        effective.fortify = effective.fortify.or(intended.fortify);
        evidence.push(Evidence::Database);
    }
    let is_own_object = unit.text.is_some() || unit.bytes > 0;
    let source = source.map(|source| sources.below(&source));
    let component = match (&source, is_own_object) {
        (Some(source), false) => component(Path::new(source)),
        _ => component(&file),
    };
    ObjectRecord {
        file,
        member: unit.member,
        component,
        source,
        effective,
        flags: unit.flags.map(|flags| sets.index(&flags)),
        requested: requested.map(|command| sets.index(&command.flags)),
        evidence,
        text: unit.text,
        code: unit.code,
    }
}

/// Removes archive members that also exist as separate objects. Another object may have the same name and
/// size, but then what is recorded differs, or makes no difference.
fn leave_out_copies(objects: &mut Vec<(PathBuf, Unit)>) {
    let name_of = |path: &Path| {
        path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let mut alone: HashMap<(String, u64), Vec<&Unit>> = HashMap::new();
    for (path, unit) in objects.iter().filter(|(_, unit)| unit.member.is_none()) {
        alone.entry((name_of(path), unit.bytes)).or_default().push(unit);
    }
    let is_copy = |unit: &Unit| {
        let member = unit.member.as_ref()?;
        let same = alone.get(&(member.clone(), unit.bytes))?;
        Some(same.iter().any(|object| {
            object.flags == unit.flags
                && object.effective == unit.effective
                && full_source(object) == full_source(unit)
        }))
    };
    let copies: Vec<bool> = objects.iter().map(|(_, unit)| is_copy(unit) == Some(true)).collect();
    let mut copies = copies.into_iter();
    objects.retain(|_| copies.next() != Some(true));
}

/// Command lines without duplicates.
#[derive(Default)]
struct Sets {
    sets: Vec<FlagSet>,
    by_flags: HashMap<Vec<String>, usize>,
}

impl Sets {
    fn index(&mut self, flags: &[String]) -> usize {
        let flags = normal(flags);
        if let Some(index) = self.by_flags.get(&flags) {
            return *index;
        }
        let index = self.sets.len();
        let others = flags.iter().filter(|flag| !has_meaning(flag)).cloned().collect();
        self.by_flags.insert(flags.clone(), index);
        self.sets.push(FlagSet { flags, others });
        index
    }
}

/// The common directory of most sources. Source names are displayed, and compared between builds,
/// relative to it.
struct SourceRoot(PathBuf);

impl SourceRoot {
    fn of(units: &[(PathBuf, Unit)]) -> Self {
        let sources: Vec<PathBuf> =
            units.iter().filter_map(|(_, unit)| full_source(unit)).map(PathBuf::from).collect();
        let mut root = PathBuf::from("/");
        loop {
            let mut counts: HashMap<PathBuf, usize> = HashMap::new();
            for source in &sources {
                // The next directory of the path; never the file itself.
                let below = source.parent().and_then(|parent| parent.strip_prefix(&root).ok());
                if let Some(next) = below.and_then(|below| below.components().next()) {
                    *counts.entry(root.join(next)).or_default() += 1;
                }
            }
            // A few sources are outside: those of the C library, generated ones.
            match counts.into_iter().max_by_key(|(_, count)| *count) {
                Some((next, count)) if count * 5 >= sources.len() * 4 => root = next,
                _ => return Self(root),
            }
        }
    }

    fn below(&self, source: &str) -> String {
        match Path::new(source).strip_prefix(&self.0) {
            Ok(below) if self.0 != Path::new("/") => below.to_string_lossy().into_owned(),
            _ => source.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_of_the_working_directory_names_it() {
        assert_eq!(Assembly::new(Path::new("./"), None).audit().root, Path::new("."));
        assert_eq!(Assembly::new(Path::new("a/.."), None).audit().root, Path::new("."));
    }
}
