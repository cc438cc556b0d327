use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// A dynamometer for databases: measures how much work a database does per unit of CPU.
///
/// All candidates of an experiment are alive at once and are measured in short slices,
/// interleaved in random order, so that drift of the machine cancels in the ratio.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 success; 1 failure of the run or of a candidate; 2 wrong usage or \
                  experiment file; 130 stopped by Ctrl-C.\n\n\
                  Start with: dbdyno doctor, then dbdyno run experiments/quickstart.toml"
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Run),
    Check(Check),
    Report(Report),
    Import(Import),
    Clean(Clean),
    Audit(Audit),
    Builds(Builds),
    List(List),
    Doctor(Doctor),
    Live(Live),
    /// Serves as a worker on standard input and output; started by `run`.
    #[command(hide = true)]
    Worker,
}

/// Build the candidates of an experiment, measure them, and report.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno run experiments/quickstart.toml\n  \
    dbdyno run my.toml --out results/first\n  \
    dbdyno run --resume results/first\n\n\
    Ctrl-C ends after the slice that is being measured, and reports what is there. A second \
    Ctrl-C ends at once. Either way --resume goes on.")]
pub struct Run {
    /// The experiment file
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub file: Option<PathBuf>,
    /// The run directory to make [default: results/NAME-TIME]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub out: Option<PathBuf>,
    /// Go on with the interrupted run in this directory
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,
    /// Where builds are kept [default: $XDG_CACHE_HOME/dbdyno, ~/.cache/dbdyno, for root
    /// /var/cache/dbdyno]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Keep the databases after a complete run
    #[arg(long)]
    pub keep_data: bool,
    #[command(flatten)]
    pub view: View,
}

/// Validate an experiment and print its plan, without running anything.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dbdyno check experiments/quickstart.toml")]
pub struct Check {
    /// The experiment file
    pub file: PathBuf,
}

/// Print the report of a run, finished or not, and write its exports; or lay several runs side by
/// side.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno report results/quickstart-20260101-120000\n  \
    dbdyno report results/first --three-groups\n  \
    dbdyno report results/small-server results/big-server --out results/both\n\n\
    Writes report.html, relative.csv, summary.csv and run.json into the directory, and counters.csv \
    where something was counted. Of several runs it compares what candidates of the same name did on \
    each machine, and writes comparison.html and comparison.csv where --out says.")]
pub struct Report {
    /// The run directories
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Where the comparison of several runs is written
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print CPU time, context switches and counters of every microbenchmark, too
    #[arg(long)]
    pub details: bool,
    #[command(flatten)]
    pub view: View,
}

/// Make a run directory of results that others measured.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno import published.tsv --out results/published\n  \
    dbdyno import a.point-query.txt b.point-query.txt --baseline a --out results/sysbench\n\n\
    A table has a line per microbenchmark and a tab-separated column of QPS per candidate; the \
    first column of figures is the baseline unless --baseline names another. sysbench's own output \
    is taken as it is, one file per run, called CANDIDATE.MICROBENCHMARK.txt; several runs of the \
    same are called CANDIDATE.MICROBENCHMARK.1.txt and so on.")]
pub struct Import {
    /// Tables (tab-separated) or sysbench's output
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The run directory to make [default: results/imported-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The candidate that the others are divided by [default: the first]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,
    /// How many clients the values of tables were measured with, which tables do not say
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub clients: u32,
    #[command(flatten)]
    pub view: View,
}

/// Remove the data that an interrupted run left: databases, servers, and its tables on servers
/// that are not its own. What was measured stays.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dbdyno clean results/quickstart-20260101-120000")]
pub struct Clean {
    /// The run directory
    pub directory: PathBuf,
}

/// Show, make or remove builds, and the sources that were fetched for them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno builds list\n  \
    dbdyno builds make experiments/compiler-variants-postgresql.toml\n  \
    dbdyno builds clean --trees\n  \
    dbdyno builds clean 3f2a9c")]
pub struct Builds {
    /// What to do
    #[command(subcommand)]
    pub action: BuildsAction,
    /// Where builds are kept [default: $XDG_CACHE_HOME/dbdyno, ~/.cache/dbdyno, for root
    /// /var/cache/dbdyno]
    #[arg(long, value_name = "DIR", global = true)]
    pub cache: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum BuildsAction {
    /// List what is kept, and how much room it takes
    List,
    /// Build every candidate of an experiment that is compiled, without measuring
    Make(MakeBuilds),
    /// Remove some of it
    Clean(CleanBuilds),
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    dbdyno builds make experiments/compiler-variants-postgresql.toml\n\n\
    Candidates with a profile are trained, too. What is in the cache is not made again; what was \
    interrupted goes on where it stopped. A run of the experiment then finds everything built.")]
pub struct MakeBuilds {
    /// The experiment file
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub struct CleanBuilds {
    /// Builds, trees, profiles and sources whose names start so
    #[arg(
        required_unless_present_any = ["all", "trees"],
        value_name = "NAME",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub names: Vec<String>,
    /// Everything that nobody is using
    #[arg(long)]
    pub all: bool,
    /// The directories that servers were compiled in, with their objects, and logs of failures
    #[arg(long)]
    pub trees: bool,
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, Args)]
pub struct View {
    /// Sum up in the older three groups, point, range and write, instead of five
    #[arg(long)]
    pub three_groups: bool,
    /// When to use colour
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

/// Read what compilers recorded in a binary or in the objects of a build, and check it.
///
/// It works on any build: debug information (-g) of gcc has the command line; -frecord-gcc-switches
/// keeps it without. clang needs -grecord-command-line or -frecord-command-line. Without records
/// the machine code itself still tells something.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno audit /usr/sbin/mariadbd\n  \
    dbdyno audit build/rel_lto --variant rel_lto\n  \
    dbdyno audit build --want optimization=O3 --want march=native --want hardening=off\n  \
    dbdyno audit build/rel --against build/rel_withdbg\n  \
    dbdyno audit 3f2a9c --against 81d0e5\n\n\
    A build that dbdyno made goes by the name that `dbdyno builds list` shows, or its beginning; \
    it should be what its variant and its own flags say, unless --variant says otherwise.\n\n\
    What can be wanted: compiler, optimization, lto, march, debug, frame-pointers, \
    stack-protector, fortify, stack-clash, control-flow, hardening, assertions, profile; and \
    allow=CHECK makes a note of what a check finds.\n\n\
    Exit codes: 0 in order; 1 something is not what was wanted; 2 wrong usage.")]
pub struct Audit {
    /// A program, a library, an object, an archive, the directory of a build, or the name of one
    /// that dbdyno keeps
    pub path: PathBuf,
    /// What the build should be: the name of a variant
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// What it should have; comes after the variant
    #[arg(long, value_name = "KEY=VALUE")]
    pub want: Vec<String>,
    /// The build, its name, a binary or --json output to show the difference of command lines
    /// against
    #[arg(long, value_name = "BASELINE")]
    pub against: Option<PathBuf>,
    /// A linked file of the build [default: all in its directory]
    #[arg(long, value_name = "FILE")]
    pub linked: Vec<PathBuf>,
    /// What the build tool asked for [default: compile_commands.json in the directory]
    #[arg(long, value_name = "FILE")]
    pub compile_db: Option<PathBuf>,
    /// Where builds are kept [default: $XDG_CACHE_HOME/dbdyno, ~/.cache/dbdyno, for root
    /// /var/cache/dbdyno]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Print lists in full
    #[arg(long)]
    pub all: bool,
}

/// List what an experiment can name: microbenchmarks, variants, systems.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno list\n  \
    dbdyno list microbenchmarks 'point-*'\n  \
    dbdyno list variants")]
pub struct List {
    /// What to list; everything when left out
    pub what: Option<Listed>,
    /// Only microbenchmarks with these names, patterns or groups
    pub words: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Listed {
    Microbenchmarks,
    Variants,
    Systems,
}

/// Look at this machine: its facts, and what would spoil results.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dbdyno doctor\n\n\
    Exit code 1 when there is a warning, so that scripts can insist on a good machine.")]
pub struct Doctor {
    /// A directory on the disk to look at
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub disk: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Optimize a running server: lay out its hot code anew, in place, and undo it at any time.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno live optimize --pid $(pidof mariadbd)\n  \
    dbdyno live status\n  \
    dbdyno live undo --pid $(pidof mariadbd)\n\n\
    The program's own code stays as it is; nothing on disk is changed. Undo works at any later \
    time, also when the first dbdyno was killed.")]
pub struct Live {
    #[command(subcommand)]
    pub command: LiveCommand,
    /// Where journals are kept [default: /run/dbdyno for root, else $XDG_RUNTIME_DIR/dbdyno]
    #[arg(long, value_name = "DIR", global = true)]
    pub state: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum LiveCommand {
    Optimize(Optimize),
    /// Say which processes are optimized, and how
    Status(Whom),
    /// Take it back: every byte of the program is as it was
    Undo(Chosen),
    /// Put in force again what was undone
    Redo(Chosen),
    Watch(Watch),
}

/// Watch processes, and optimize those that need much CPU.
#[derive(Debug, Args)]
#[command(after_help = "Example of a file:\n  \
    [watch]\n  \
    executables = [\"/usr/sbin/mariadbd\"]\n  \
    cpu = \"50%\"          # of one CPU, over `look`\n  \
    look = \"10s\"\n  \
    profile = \"20s\"\n  \
    once = false         # true: never optimize a process twice")]
pub struct Watch {
    /// Which programs, and from which use of CPU on
    pub file: PathBuf,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Whom {
    /// Only this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
}

#[derive(Debug, Args)]
pub struct Chosen {
    /// The process
    #[arg(long, value_name = "PID")]
    pub pid: u32,
    /// All that descend from it, too: servers with a process per session
    #[arg(long)]
    pub family: bool,
    #[command(flatten)]
    pub care: Care,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct Care {
    /// For how many milliseconds threads may stand still at most: 5 to 10000
    #[arg(long, value_name = "MS", default_value_t = 50,
        value_parser = clap::value_parser!(u64).range(5..=10_000))]
    pub stop_bound: u64,
    /// Go on although a filter of system calls is in force
    #[arg(long)]
    pub allow_seccomp: bool,
}

/// Sample a process, lay out its hot code anew, and redirect it there.
#[derive(Debug, Args)]
pub struct Optimize {
    #[command(flatten)]
    pub chosen: Chosen,
    /// For how many seconds to sample
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0)]
    pub seconds: f64,
    /// Samples per second and CPU
    #[arg(long, value_name = "HZ", default_value_t = 7999)]
    pub frequency: u32,
    /// Use this profile instead of sampling
    #[arg(long, value_name = "FILE", conflicts_with = "profile_out")]
    pub profile_in: Option<PathBuf>,
    /// Keep the profile in this file
    #[arg(long, value_name = "FILE")]
    pub profile_out: Option<PathBuf>,
    /// Write the samples of the program itself in BOLT's text format, too: for `llvm-bolt --data`
    #[arg(long, value_name = "FILE", conflicts_with = "profile_in")]
    pub bolt_out: Option<PathBuf>,
    /// Copy functions as they are, without another order: to tell what the order brings
    #[arg(long)]
    pub keep_order: bool,
    /// A command that prints how much work was done so far, as a number: judge by CPU time per
    /// work, and undo what makes it worse
    #[arg(long, value_name = "COMMAND")]
    pub work_command: Option<String>,
    /// For how many seconds to judge: undone and in force in 20 turns
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    pub judge: f64,
}
