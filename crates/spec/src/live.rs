//! `live` of a candidate: its server's hot code is laid out anew while it runs.

use dbdyno_document::{Problem, Span, Spanned, Table, did_you_mean};
use dbdyno_record::build::BoltProfileMethod;
use dbdyno_units::Nanos;

use crate::candidate;
use crate::experiment::{Build, Candidate, Live, System, Train, Training, Workload};

/// Shorter profiles say little, longer ones nothing more.
const PROFILES: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(100)..=Nanos::from_secs(600);

/// The kernel takes microseconds for each sample, and slows down beyond its own limit.
const FREQUENCIES: std::ops::RangeInclusive<i64> = 50..=20_000;

/// Less is not enough for a server's threads to come to their stop; more, nobody lets one stand
/// still.
const STOPS: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(5)..=Nanos::from_secs(10);

/// What holds where `live = true` says all.
const DEFAULT: Live = Live {
    profile: Nanos::from_secs(15),
    frequency: 7_999,
    samples_of: None,
    train: Train::Each,
    clients: None,
    stop: Nanos::from_millis(50),
    keep_order: false,
};

/// What was read: the options, and where what has to fit the workload stands.
pub struct Read {
    /// The options; `None` where the candidate stays as it is.
    pub live: Option<Live>,
    /// Where it stands in the file.
    pub span: Span,
    /// Where the number of clients stands.
    clients: Option<Span>,
    /// Where the candidate stands whose samples are used.
    samples_of: Option<Span>,
}

/// Reads the key.
pub fn read(table: &mut Table<'_>) -> Option<Read> {
    let span = table.key_span("live")?;
    if !table.is_table("live") {
        let live = table.bool("live")?.value.then_some(DEFAULT);
        return Some(Read { live, span, clients: None, samples_of: None });
    }
    let mut table = table.table("live")?;
    let mut live = DEFAULT;
    if let Some(profile) = table.duration("profile", PROFILES) {
        live.profile = profile.value;
    }
    let samples_of = table.string("samples_of");
    if let Some(other) = samples_of {
        live.samples_of = Some(other.value.to_owned());
        // With the same samples, nothing else would come of another time.
        live.train = Train::Once;
        for key in ["frequency", "train"] {
            table.refuse(key, "cannot be combined with `samples_of`", "leave it out");
        }
    }
    if let Some(frequency) = table.integer("frequency", FREQUENCIES) {
        live.frequency = frequency.value as u32;
    }
    if let Some(train) = table.choice("train", &[("each", Train::Each), ("once", Train::Once)]) {
        live.train = train.value;
    }
    let clients = table.integer("clients", 1..=1024);
    live.clients = clients.as_ref().map(|clients| clients.value as u32);
    if let Some(stop) = table.duration("stop", STOPS) {
        live.stop = stop.value;
    }
    if let Some(keep) = table.bool("keep_order") {
        live.keep_order = keep.value;
    }
    table.finish();
    Some(Read {
        live: Some(live),
        span,
        clients: clients.map(|Spanned { span, .. }| span),
        samples_of: samples_of.map(|Spanned { span, .. }| span),
    })
}

/// That what is trained with is among what is measured, where warm-up slices are stored; and that
/// all ask for the same warm-up, which all candidates get.
pub fn check(root: &Table<'_>, reads: &[&Read], workload: &Workload) {
    let mut others = reads.iter().filter_map(|read| Some((read.span, read.live.as_ref()?)));
    if let Some((_, first)) = others.next() {
        for (span, live) in others {
            if (live.train, live.clients, live.profile)
                != (first.train, first.clients, first.profile)
            {
                let message = "candidates with `live` have different warm-ups";
                let help = "set the same `train`, `clients` and `profile` in each `live`";
                root.report(Problem::new(span, message).help(help));
            }
        }
    }
    for read in reads {
        let (Some(live), Some(span)) = (&read.live, read.clients) else { continue };
        if let Some(clients) = live.clients.filter(|one| !workload.clients.contains(one)) {
            let measured: Vec<String> = workload.clients.iter().map(u32::to_string).collect();
            let message = format!("{clients} clients are not measured");
            let help = format!("`clients` of [workload] has {}", measured.join(", "));
            root.report(Problem::new(span, message).help(help));
        }
    }
}

/// That samples are taken from a build that is sampled for BOLT, by a server that is what BOLT was
/// given: they fit no other.
pub fn check_samples(root: &Table<'_>, candidates: &[candidate::Read<'_>]) {
    for own in candidates {
        let Some(read) = &own.live else { continue };
        let Some((live, span)) = read.live.as_ref().zip(read.samples_of) else { continue };
        let name = live.samples_of.as_deref().unwrap_or_default();
        let Some(other) = candidates.iter().find(|other| other.name == Some(name)) else {
            let names: Vec<&str> = candidates.iter().filter_map(|one| one.name).collect();
            let problem = Problem::new(span, format!("unknown candidate `{name}`"));
            root.report(problem.help(did_you_mean(name, &names)));
            continue;
        };
        // What is wrong with others was reported with them.
        let (Some(own), Some(other)) = (&own.complete, &other.complete) else { continue };
        if !is_sampled_for_bolt(other) {
            let help = "it needs `bolt = true` and `bolt_profile = \"samples\"`";
            let problem = Problem::new(span, format!("`{name}` is not sampled for BOLT"));
            root.report(problem.help(help));
        } else if !is_before_bolt(own, other) {
            let message =
                format!("`{}` is not the build that BOLT optimizes for `{name}`", own.name);
            let help = format!("use the settings of `{name}`, with `bolt = false`");
            root.report(Problem::new(span, message).help(help));
        }
    }
}

fn is_sampled_for_bolt(candidate: &Candidate) -> bool {
    let training = candidate.system.build().filter(|build| build.bolt);
    let training = training.and_then(|build| build.training.as_ref());
    training.is_some_and(|training| training.bolt_profile == BoltProfileMethod::Samples)
}

/// Whether one is compiled as the other is, and not laid out by BOLT.
fn is_before_bolt(own: &Candidate, other: &Candidate) -> bool {
    let (System::Private(server), System::Private(others)) = (&own.system, &other.system) else {
        return false;
    };
    let (Some(build), Some(laid_out)) = (&server.build, &others.build) else { return false };
    let what = |training: &Training| (training.words.clone(), training.time);
    // Without a training no compiler has a profile.
    let trained_alike = build.training.is_none()
        || build.training.as_ref().map(what) == laid_out.training.as_ref().map(what);
    let with_bolt = Build { bolt: true, training: laid_out.training.clone(), ..build.clone() };
    !build.bolt && trained_alike && with_bolt == *laid_out && server.engine == others.engine
}

/// That an insert benchmark, which has no warm-up, has no such candidate.
pub fn refuse_beside_inserts(root: &Table<'_>, reads: &[&Read]) {
    for read in reads.iter().filter(|read| read.live.is_some()) {
        let message = "`live` is for microbenchmarks";
        let help = "remove `live` from an insert benchmark";
        root.report(Problem::new(read.span, message).help(help));
    }
}
