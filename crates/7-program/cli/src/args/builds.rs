//! Commands that work on builds.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};

/// List, make or remove cached builds and their sources.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno builds list\n  \
    dbdyno builds make experiments/compiler-variants-postgresql.toml\n  \
    dbdyno builds clean --trees\n  \
    dbdyno builds clean 3f2a9c")]
pub struct Builds {
    #[command(subcommand)]
    pub action: BuildsAction,
    /// Build cache [default: $XDG_CACHE_HOME/dbdyno or ~/.cache/dbdyno; for root
    /// /var/cache/dbdyno]
    #[arg(long, value_name = "DIR", global = true)]
    pub cache: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum BuildsAction {
    /// List cached builds, build trees, profiles and sources, with their sizes
    #[command(after_help = "Example:\n  dbdyno builds list")]
    List,
    /// Build and train all compiled candidates of an experiment and fetch its releases, without measuring
    Make(MakeBuilds),
    /// Remove cached builds, build trees, profiles or sources
    Clean(CleanBuilds),
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    dbdyno builds make experiments/compiler-variants-postgresql.toml\n\n\
    Profiles for candidates with `training` are collected as well. Cached builds are reused and \
    interrupted ones resumed. A later run of the experiment finds all its builds and releases in the cache.")]
pub struct MakeBuilds {
    /// Experiment file
    pub file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno builds clean 3f2a9c 81d0e5\n  \
    dbdyno builds clean --trees\n  \
    dbdyno builds clean --all\n\n\
    Entries in use by another dbdyno are kept.")]
pub struct CleanBuilds {
    /// Remove entries whose names start with this
    #[arg(
        required_unless_present_any = ["all", "trees"],
        value_name = "NAME",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub names: Vec<String>,
    /// Remove everything that is not in use
    #[arg(long)]
    pub all: bool,
    /// Remove the directories that servers were compiled in, and logs of failed builds
    #[arg(long)]
    pub trees: bool,
}

/// Show and check the compiler settings recorded in a binary or in the objects of a build.
///
/// Works with any build. gcc records its command line with -g or -frecord-gcc-switches, clang with
/// -grecord-command-line or -frecord-command-line. Without such records, only what the machine
/// code itself shows is reported.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno audit /usr/sbin/mariadbd\n  \
    dbdyno audit build/rel_lto --variant rel_lto\n  \
    dbdyno audit build --expect optimization=O3 --expect march=native\n  \
    dbdyno audit build/rel --against build/rel_withdbg\n  \
    dbdyno audit 3f2a9c --against 81d0e5\n\n\
    A cached build is named as in `dbdyno builds list`; a prefix is enough. It is checked \
    against its own variant and flags, unless --variant is given.\n\n\
    Keys of --expect: compiler, optimization, lto, march, debug, frame-pointers, \
    stack-protector, fortify, stack-clash, control-flow, hardening, assertions, profile. \
    ignore=CHECK reports the findings of a check without failing.\n\n\
    Exit codes: 0 no violation; 1 at least one setting differs from what is expected; 2 invalid \
    usage.")]
pub struct Audit {
    /// Program, library, object, archive, build directory, or name of a cached build
    pub path: PathBuf,
    /// Variant that the build should match
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Expected setting; overrides the variant
    #[arg(long, value_name = "KEY=VALUE")]
    pub expect: Vec<String>,
    /// Show the difference of command lines to this build, binary or --json output
    #[arg(long, value_name = "BASELINE")]
    pub against: Option<PathBuf>,
    /// Linked file of the build [default: all in the directory]
    #[arg(long, value_name = "FILE")]
    pub linked: Vec<PathBuf>,
    /// Compile database of the build [default: compile_commands.json in the directory]
    #[arg(long, value_name = "FILE")]
    pub compile_db: Option<PathBuf>,
    /// Build cache [default: $XDG_CACHE_HOME/dbdyno or ~/.cache/dbdyno; for root
    /// /var/cache/dbdyno]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Do not abbreviate lists
    #[arg(long)]
    pub all: bool,
}
