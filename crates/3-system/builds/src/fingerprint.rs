use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::Digest;

use crate::recipe::{self, Flags, RecipeInput, RecipeOptions};
use crate::{Compiler, HostCpu, Sha256, System, Variant};

/// Identifies a build: two builds with the same fingerprint are interchangeable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(Sha256);

impl Fingerprint {
    /// The first twelve digits, for reports.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

/// Prints 64 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Everything that a build depends on.
#[derive(Clone, Copy, Debug)]
pub struct Ingredients<'a> {
    pub system: System,
    /// The checksum of its source.
    pub source: &'a Sha256,
    /// Its version, on which the recipe depends.
    pub version: &'a str,
    /// The variant. Variants with the same flags are different builds, because reports show the
    /// build's variant.
    pub variant: &'a Variant,
    /// The recipe's flags for the variant, with the extra ones.
    pub flags: &'a Flags,
    pub options: &'a RecipeOptions,
    /// The role in profile-guided optimization, with the profile's checksum.
    pub profiling: &'a str,
    /// BOLT's profile and options; empty without BOLT.
    pub bolt: &'a str,
    pub compiler: &'a Compiler,
    /// The version of the linker that the flags name; `None` if they name none.
    pub linker: Option<&'a str>,
    /// The CPU, if the flags contain `native`.
    pub host: Option<&'a HostCpu>,
}

impl Ingredients<'_> {
    /// The checksum of all ingredients and the commands of the recipe.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hash = Fields(sha2::Sha256::new());
        hash.add("dbdyno build", b"3");
        hash.add("system", self.system.name().as_bytes());
        hash.add("commands", self.commands().as_bytes());
        hash.add("source", self.source.as_bytes());
        hash.add("variant", self.variant.name.as_bytes());
        // These have effects beyond the flags, since build systems have switches for them.
        hash.add("build type", self.variant.build_type.word().as_bytes());
        hash.add("hardening", self.variant.hardening.word().as_bytes());
        hash.add("assertions", &[u8::from(self.variant.assertions)]);
        hash.add("myrocks", &[u8::from(self.options.myrocks)]);
        hash.add("tool", &self.options.tool.map_or([0], |tool| [1 + tool as u8]));
        hash.add("profiling", self.profiling.as_bytes());
        if !self.bolt.is_empty() {
            hash.add("bolt", self.bolt.as_bytes());
        }
        for argument in &self.options.arguments {
            hash.add("argument", argument.as_bytes());
        }
        for flag in &self.flags.compile {
            hash.add("compile flag", flag.as_bytes());
        }
        for flag in &self.flags.link {
            hash.add("link flag", flag.as_bytes());
        }
        for part in self.compiler.identity() {
            hash.add("compiler", part.as_bytes());
        }
        if let Some(linker) = self.linker {
            hash.add("linker", linker.as_bytes());
        }
        if let Some(host) = self.host {
            hash.add("host", host.as_str().as_bytes());
        }
        Fingerprint(Sha256::finish(hash.0))
    }

    /// What the recipe executes and copies, with names in place of the paths and the number of jobs that
    /// differ between machines.
    fn commands(&self) -> String {
        let compiler = Compiler { path: PathBuf::from("compiler"), ..self.compiler.clone() };
        let plan = recipe::plan(&RecipeInput {
            system: self.system,
            version: self.version,
            source: Path::new("source"),
            tree: Path::new("tree"),
            home: Path::new("home"),
            staging: Path::new("staging"),
            variant: self.variant,
            flags: self.flags,
            compiler: &compiler,
            options: self.options,
            jobs: NonZeroUsize::MIN,
        });
        let steps = plan.steps.iter().chain(&plan.install).map(|step| step.to_shell() + "\n");
        steps.collect::<String>() + &format!("{:?}", plan.pieces)
    }
}

/// Hashes labelled fields with their lengths, so that different lists of fields never hash the same
/// bytes.
struct Fields(sha2::Sha256);

impl Fields {
    fn add(&mut self, label: &str, value: &[u8]) {
        for part in [label.as_bytes(), value] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;
    use crate::CompilerKind;
    use dbdyno_types::build::Hardening;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn fingerprint_depends_on_each_ingredient() {
        let compiler = Compiler {
            path: PathBuf::from("/usr/bin/gcc"),
            resolved: PathBuf::from("/usr/bin/gcc-12"),
            kind: CompilerKind::Gcc,
            version: "12.2.0".to_owned(),
            version_line: "gcc (Debian 12.2.0-14) 12.2.0".to_owned(),
            target: "x86_64-linux-gnu".to_owned(),
            linker: Some("GNU ld 2.40".to_owned()),
        };
        let source = Sha256::of(b"source");
        let flags = Flags { compile: words("-O2 -g"), link: words("-shared") };
        let host = HostCpu::parse("model name: one\n");
        let variants = Variant::all();
        let options = RecipeOptions::default();
        let base = Ingredients {
            system: System::Sqlite,
            source: &source,
            version: "3.50.4",
            variant: &variants[0],
            flags: &flags,
            options: &options,
            profiling: "none",
            bolt: "",
            compiler: &compiler,
            linker: None,
            host: None,
        };

        let hardened = Variant { hardening: Hardening::On, ..variants[0].clone() };
        let myrocks = RecipeOptions { myrocks: true, ..options.clone() };
        let argument = RecipeOptions { arguments: words("-DX=1"), ..options.clone() };
        let other_source = Sha256::of(b"other");
        let moved = Flags { compile: words("-O2"), link: words("-g -shared") };
        let joined = Flags { compile: vec!["-O2-g".to_owned()], link: words("-shared") };
        let distribution = Compiler {
            version_line: "gcc (Debian 12.2.0-15) 12.2.0".to_owned(),
            ..compiler.clone()
        };
        let target = Compiler { target: "aarch64-linux-gnu".to_owned(), ..compiler.clone() };
        let elsewhere = Compiler { resolved: PathBuf::from("/opt/gcc"), ..compiler.clone() };
        let linker = Compiler { linker: Some("GNU ld 2.41".to_owned()), ..compiler.clone() };
        let other_host = HostCpu::parse("model name: two\n");
        let all = [
            base,
            Ingredients { source: &other_source, ..base },
            Ingredients { variant: &variants[1], ..base },
            Ingredients { variant: &hardened, ..base },
            Ingredients { options: &myrocks, ..base },
            Ingredients { profiling: "collect", ..base },
            Ingredients { profiling: "another", ..base },
            Ingredients { bolt: "with a profile", ..base },
            Ingredients { options: &argument, ..base },
            Ingredients { system: System::MariaDb, ..base },
            // The commands depend on the version.
            Ingredients { system: System::PostgreSql, version: "10.23", ..base },
            Ingredients { system: System::PostgreSql, version: "15.18", ..base },
            Ingredients { flags: &moved, ..base },
            Ingredients { flags: &joined, ..base },
            Ingredients { compiler: &distribution, ..base },
            Ingredients { compiler: &target, ..base },
            Ingredients { compiler: &elsewhere, ..base },
            Ingredients { compiler: &linker, ..base },
            Ingredients { linker: Some("LLD 14.0.6"), ..base },
            Ingredients { linker: Some("LLD 15.0.6"), ..base },
            Ingredients { host: Some(&host), ..base },
            Ingredients { host: Some(&other_host), ..base },
        ];
        let distinct: BTreeSet<_> = all.iter().map(Ingredients::fingerprint).collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(base.fingerprint(), Ingredients { ..base }.fingerprint());
    }

    #[test]
    fn fingerprint_is_independent_of_compiler_name() {
        let called = |name: &str| Compiler {
            path: PathBuf::from("/usr/bin").join(name),
            resolved: PathBuf::from("/usr/bin/gcc-12"),
            kind: CompilerKind::Gcc,
            version: "12.2.0".to_owned(),
            version_line: format!("{name} (Debian) 12.2.0"),
            target: String::new(),
            linker: None,
        };
        let print = |compiler: &Compiler| {
            let flags = Flags { compile: Vec::new(), link: Vec::new() };
            Ingredients {
                system: System::Sqlite,
                source: &Sha256::of(b""),
                version: "3.50.4",
                variant: &Variant::all()[0],
                flags: &flags,
                options: &RecipeOptions::default(),
                profiling: "none",
                bolt: "",
                compiler,
                linker: None,
                host: None,
            }
            .fingerprint()
        };
        assert_eq!(print(&called("cc")), print(&called("gcc")));
    }
}
