//! The keys of a candidate about compiling its system: `source`, `variant`, `compiler` and others.

use dbdyno_document::{Problem, Spanned, Table, did_you_mean};
use dbdyno_types::FlagCheck;
use dbdyno_types::build::{ConfigureTool, SourceOrigin, Variant, VariantOverrides};
use dbdyno_workloads::catalog::Catalog;

use crate::experiment::Build;
use crate::variant::{DEFAULT_BASE, SETTINGS, help_of_unknown, read_settings};
use crate::{source, training};

/// The keys that this module reads, in addition to [`SETTINGS`].
const KEYS: [&str; 11] = [
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

/// Definitions that a candidate can refer to.
pub struct Definitions {
    /// The variants of this experiment; `None` for one with problems.
    pub variants: Vec<(String, Option<VariantOverrides>)>,
    /// `[source]`, for candidates without `source`.
    pub source: Option<SourceOrigin>,
    /// `audit_ignore` of `[checks]`, for candidates without it.
    pub audit_ignore: Vec<FlagCheck>,
    /// The microbenchmarks to train with.
    pub catalog: Catalog,
}

/// Whether the candidate has a variant, or settings instead of one.
pub fn is_requested(table: &Table<'_>) -> bool {
    ["variant"].iter().chain(&SETTINGS).any(|key| table.has(key))
        || table.peek_bool("bolt") == Some(true)
}

/// Rejects all keys for compiling.
pub fn refuse(table: &mut Table<'_>, help: &str) {
    for key in KEYS.into_iter().chain(SETTINGS) {
        table.refuse(key, "is for systems that dbdyno compiles", help);
    }
}

/// Reads the keys; `None` after a problem.
pub fn read(
    table: &mut Table<'_>,
    definitions: &Definitions,
    default: Option<&SourceOrigin>,
) -> Option<Build> {
    if !is_requested(table) {
        let problem = Problem::new(table.span(), "missing key `variant` in [[candidate]]");
        table.report(problem.help("add one, such as `variant = \"rel\"`"));
    }
    let chosen = read_variant(table, definitions);
    let default = default.or(definitions.source.as_ref());
    let source = read_source(table, default);
    let named = table.has("compiler");
    let compiler = read_compiler(table);
    let flags = read_flags(table);
    let configure = read_arguments(table);
    let audit_ignore = read_audit_ignore(table);
    let configure_with = table.choice("configure_with", ConfigureTool::WORDS);
    let Some(Chosen { variant, settings }) = chosen else {
        training::skip(table);
        return None;
    };
    let bolt = training::read_bolt(table, &variant);
    let training = training::read(table, &variant, bolt, &definitions.catalog);
    Some(Build {
        source: source?,
        variant: variant.name,
        compiler: variant.compiler.filter(|_| !named).or(compiler)?,
        settings,
        flags: flags?,
        configure_with: configure_with.map(|tool| tool.value),
        configure: configure?,
        training: training?,
        bolt,
        audit_ignore: audit_ignore.unwrap_or_else(|| definitions.audit_ignore.clone()),
    })
}

/// A candidate's variant.
struct Chosen {
    variant: Variant,
    /// `None` for a preset.
    settings: Option<VariantOverrides>,
}

/// Reads `variant`, and the settings in addition to it or instead of it.
fn read_variant(table: &mut Table<'_>, definitions: &Definitions) -> Option<Chosen> {
    let named = match table.string("variant") {
        Some(name) => find_variant(table, definitions, name),
        None if table.has("variant") => None,
        None => find_preset(DEFAULT_BASE),
    };
    // Also after a problem: keys that are not read are unknown.
    let settings = read_settings(table);
    let named = named?;
    // If the variant already includes BOLT, `bolt` only decides whether BOLT is run.
    let wants_bolt = table.peek_bool("bolt") == Some(true) && !named.variant.bolt;
    let own = VariantOverrides { bolt: wants_bolt.then_some(true), ..settings };
    if own == VariantOverrides::default() {
        return Some(named);
    }
    let (base, name) = (named.variant.name.clone(), own.name(&named.variant.name));
    let settings = named.settings.unwrap_or(VariantOverrides { base, ..Default::default() });
    let settings = settings.overlaid(own);
    let variant = settings.resolve(&name).ok()?;
    Some(match variant.equal_preset() {
        Some(variant) => Chosen { variant, settings: None },
        None => Chosen { variant, settings: Some(settings) },
    })
}

fn find_preset(name: &str) -> Option<Chosen> {
    Some(Chosen { variant: Variant::by_name(name).ok()?, settings: None })
}

fn find_variant(
    table: &Table<'_>,
    definitions: &Definitions,
    name: Spanned<&str>,
) -> Option<Chosen> {
    let own = definitions.variants.iter().find(|(own, _)| own == name.value);
    if let Some((name, settings)) = own {
        let settings = settings.clone()?;
        let variant = settings.resolve(name).ok()?;
        return Some(Chosen { variant, settings: Some(settings) });
    }
    let preset = find_preset(name.value);
    if preset.is_none() {
        let presets = Variant::names();
        let own = definitions.variants.iter().map(|(name, _)| name);
        let all = presets.iter().chain(own).map(String::as_str);
        let message = format!("unknown variant `{}`", name.value);
        table.report(Problem::new(name.span, message).help(help_of_unknown(name.value, all)));
    }
    preset
}

/// Reads `source`.
fn read_source(table: &mut Table<'_>, default: Option<&SourceOrigin>) -> Option<SourceOrigin> {
    match table.table("source") {
        Some(inner) => source::read(inner),
        None if table.has("source") => None,
        None => Some(default.cloned().unwrap_or_default()),
    }
}

/// Reads `compiler`, by default gcc; `None` after a problem.
pub fn read_compiler(table: &mut Table<'_>) -> Option<String> {
    let Some(compiler) = table.string("compiler") else {
        return (!table.has("compiler")).then(|| "gcc".to_owned());
    };
    if compiler.value.is_empty() || compiler.value.contains(char::is_control) {
        let problem = Problem::new(compiler.span, "`compiler` is not the name of a compiler");
        table.report(problem.help("use `gcc`, `clang`, a versioned name or a path"));
        return None;
    }
    Some(compiler.value.to_owned())
}

/// Reads `flags`; `None` after a problem.
pub fn read_flags(table: &mut Table<'_>) -> Option<Vec<String>> {
    let Some(flags) = table.strings("flags") else {
        return (!table.has("flags")).then(Vec::new);
    };
    for flag in &flags.value {
        // Compilers treat an argument without a dash as an input file.
        if !flag.value.starts_with('-') || flag.value.contains(char::is_control) {
            let message = format!("`{}` is not a compiler flag", flag.value);
            let help = "flags start with `-`; join arguments: \"--param=max-inline=9\"";
            table.report(Problem::new(flag.span, message).help(help));
        }
    }
    Some(flags.value.into_iter().map(|flag| flag.value.to_owned()).collect())
}

/// Reads `audit_ignore`: checks of the flag audit whose violations are notes only.
pub fn read_audit_ignore(table: &mut Table<'_>) -> Option<Vec<FlagCheck>> {
    let names = table.strings("audit_ignore")?;
    Some(names.value.into_iter().filter_map(|name| read_check(table, name)).collect())
}

fn read_check(table: &Table<'_>, name: Spanned<&str>) -> Option<FlagCheck> {
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
            let problem = Problem::new(argument.span, "an argument must be one line and not empty");
            table.report(problem.help("write it as for the tool, such as \"-DWITH_NUMA=ON\""));
        }
    }
    Some(arguments.value.into_iter().map(|argument| argument.value.to_owned()).collect())
}
