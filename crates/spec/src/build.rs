//! `source`, `variant`, `compiler` and the other keys of a candidate that say how its system is
//! compiled.

use dbdyno_document::{Problem, Spanned, Table, did_you_mean};
use dbdyno_record::FlagCheck;
use dbdyno_workloads::catalog::Catalog;

use crate::Known;
use crate::experiment::{Build, ConfigureTool, Source, VariantSettings};
use crate::{source, training};

/// The keys that this module reads.
pub const KEYS: [&str; 11] = [
    "variant",
    "compiler",
    "flags",
    "source",
    "configure",
    "configure_with",
    "training",
    "training_time",
    "bolt",
    "bolt_profile",
    "audit_ignore",
];

/// What a candidate can refer to.
pub struct Definitions<'k> {
    /// Names that are built in.
    pub known: Known<'k>,
    /// The variants of this experiment.
    pub variants: Vec<(String, VariantSettings)>,
    /// The source of all candidates that name none.
    pub source: Option<Source>,
    /// `audit_ignore` of candidates that have none.
    pub audit_ignore: Vec<FlagCheck>,
    /// What there is to train with.
    pub catalog: Catalog,
}

/// Reads the keys; `None` where a problem was reported.
pub fn read(
    table: &mut Table<'_>,
    definitions: &Definitions<'_>,
    default: Option<&Source>,
) -> Option<Build> {
    table.require("variant");
    let variant = read_variant(table, definitions);
    let default = default.or(definitions.source.as_ref());
    let source = read_source(table, default);
    let named = table.has("compiler");
    let compiler = read_compiler(table);
    let flags = read_flags(table);
    let configure = read_arguments(table);
    let tools = [("autoconf", ConfigureTool::Autoconf), ("meson", ConfigureTool::Meson)];
    let audit_ignore = read_audit_ignore(table);
    let configure_with = table.choice("configure_with", &tools).map(|tool| tool.value);
    let Some((variant, settings)) = variant else {
        training::skip(table);
        return None;
    };
    let base = settings.as_ref().map_or(variant.as_str(), |settings| settings.base.as_str());
    let bolt = training::read_bolt(table, base);
    let training = training::read(table, base, bolt, &definitions.catalog);
    let of_variant = settings.as_ref().and_then(|settings| settings.compiler.clone());
    Some(Build {
        source: source?,
        variant,
        compiler: of_variant.filter(|_| !named).or(compiler)?,
        settings,
        flags: flags?,
        configure_with,
        configure: configure?,
        training: training?,
        bolt,
        audit_ignore: audit_ignore.unwrap_or_else(|| definitions.audit_ignore.clone()),
    })
}

fn read_variant(
    table: &mut Table<'_>,
    definitions: &Definitions<'_>,
) -> Option<(String, Option<VariantSettings>)> {
    let variant = table.string("variant")?;
    let own = definitions.variants.iter().find(|(name, _)| name == variant.value);
    if let Some((name, settings)) = own {
        return Some((name.clone(), Some(settings.clone())));
    }
    let known = definitions.known.variants;
    if known.contains(&variant.value) {
        return Some((variant.value.to_owned(), None));
    }
    let message = format!("unknown variant `{}`", variant.value);
    let own = definitions.variants.iter().map(|(name, _)| name.as_str());
    let all: Vec<&str> = known.iter().copied().chain(own).collect();
    table.report(Problem::new(variant.span, message).help(did_you_mean(variant.value, &all)));
    None
}

/// The source of this candidate.
fn read_source(table: &mut Table<'_>, default: Option<&Source>) -> Option<Source> {
    match table.table("source") {
        Some(inner) => source::read(inner),
        None if table.has("source") => None,
        None => Some(default.cloned().unwrap_or_default()),
    }
}

/// The compiler; gcc where none is named, `None` where a problem was reported.
pub fn read_compiler(table: &mut Table<'_>) -> Option<String> {
    let Some(compiler) = table.string("compiler") else {
        return (!table.has("compiler")).then(|| "gcc".to_owned());
    };
    if compiler.value.is_empty() || compiler.value.contains(char::is_control) {
        let problem = Problem::new(compiler.span, "`compiler` names no compiler");
        table.report(problem.help("write `gcc`, `clang`, a versioned name or a path"));
        return None;
    }
    Some(compiler.value.to_owned())
}

/// The flags; `None` where a problem was reported.
pub fn read_flags(table: &mut Table<'_>) -> Option<Vec<String>> {
    let Some(flags) = table.strings("flags") else {
        return (!table.has("flags")).then(Vec::new);
    };
    for flag in &flags.value {
        // A compiler takes a word without a dash for the name of a file to compile.
        if !flag.value.starts_with('-') || flag.value.contains(char::is_control) {
            let message = format!("`{}` is not a compiler flag", flag.value);
            let help = "flags start with `-`, and arguments are joined: \"--param=max-inline=9\"";
            table.report(Problem::new(flag.span, message).help(help));
        }
    }
    Some(flags.value.into_iter().map(|flag| flag.value.to_owned()).collect())
}

/// Reads `audit_ignore`: checks of the flag audit whose violations are notes only.
pub fn read_audit_ignore(table: &mut Table<'_>) -> Option<Vec<FlagCheck>> {
    table.renamed("audit_allows", "audit_ignore");
    let names = table.strings("audit_ignore")?;
    Some(names.value.into_iter().filter_map(|name| read_check(table, name)).collect())
}

fn read_check(table: &Table<'_>, name: Spanned<&str>) -> Option<FlagCheck> {
    if let Some(check) = FlagCheck::by_former_name(name.value) {
        table.document().deprecate(name.span, name.value, check.name());
        return Some(check);
    }
    let check = FlagCheck::by_name(name.value);
    if check.is_none() {
        let message = format!("unknown check `{}`", name.value);
        let help = did_you_mean(name.value, &FlagCheck::ALL.map(FlagCheck::name));
        table.report(Problem::new(name.span, message).help(help));
    }
    check
}

fn read_arguments(table: &mut Table<'_>) -> Option<Vec<String>> {
    let Some(arguments) = table.strings("configure") else {
        return (!table.has("configure")).then(Vec::new);
    };
    for argument in &arguments.value {
        if argument.value.is_empty() || argument.value.contains(char::is_control) {
            let problem = Problem::new(argument.span, "an argument is one line of text");
            table.report(problem.help("write it as for the tool, as in \"-DWITH_NUMA=ON\""));
        }
    }
    Some(arguments.value.into_iter().map(|argument| argument.value.to_owned()).collect())
}
