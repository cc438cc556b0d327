//! `live` of a candidate: the live optimizer rewrites its server's code layout while it runs.

use dbdyno_document::{Span, Table, did_you_mean};
use dbdyno_types::build::BoltProfileMethod;
use dbdyno_units::Nanos;

use crate::candidate::CandidateSection;
use crate::experiment::{Build, Candidate, Counts, Live, System, Train, Training, Workload};

/// Shorter profiles have too few samples; longer ones do not improve the layout.
const PROFILES: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(100)..=Nanos::from_secs(600);

/// Each sample costs microseconds of kernel time; above its limit the kernel throttles.
const FREQUENCIES: std::ops::RangeInclusive<u32> = 50..=20_000;

/// Shorter pauses are not enough to stop all threads; longer ones are unacceptable.
const PAUSES: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(5)..=Nanos::from_secs(10);

/// The options of `live = true`.
const DEFAULT: Live = Live {
    profile: Nanos::from_secs(15),
    frequency: 7_999,
    samples_of: None,
    train: Train::Each,
    counts: Counts::Exact,
    clients: None,
    max_pause: Nanos::from_millis(20),
    keep_order: false,
    force: false,
};

/// The options, and the positions of those that must fit the workload.
pub struct LiveSection {
    /// The options; `None` for `live = false`.
    pub live: Option<Live>,
    pub span: Span,
    clients: Option<Span>,
    samples_of: Option<Span>,
}

pub fn read(table: &mut Table<'_>) -> Option<LiveSection> {
    let span = table.key_span("live")?;
    if !table.is_table("live") {
        let live = table.bool("live")?.value.then_some(DEFAULT);
        return Some(LiveSection { live, span, clients: None, samples_of: None });
    }
    let mut table = table.table("live")?;
    let mut live = DEFAULT;
    table.set("profile", PROFILES, &mut live.profile);
    let samples_of = table.string("samples_of");
    if let Some(other) = samples_of {
        live.samples_of = Some(other.value.to_owned());
        // The same samples would result in the same layout again.
        live.train = Train::Once;
        live.counts = Counts::Sampled;
        for key in ["frequency", "train", "counts", "force"] {
            table.refuse(key, "cannot be combined with `samples_of`", "leave it out");
        }
    }
    table.set("frequency", FREQUENCIES, &mut live.frequency);
    table.set_choice("train", Train::WORDS, &mut live.train);
    table.set_choice("counts", Counts::WORDS, &mut live.counts);
    let clients = table.number_at("clients", 1..=1024_u32);
    live.clients = clients.map(|clients| clients.value);
    table.set("max_pause", PAUSES, &mut live.max_pause);
    table.set_bool("keep_order", &mut live.keep_order);
    table.set_bool("force", &mut live.force);
    table.finish();
    Some(LiveSection {
        live: Some(live),
        span,
        clients: clients.map(|clients| clients.span),
        samples_of: samples_of.map(|other| other.span),
    })
}

/// Checks that all candidates have the same warm-up, and that its number of clients is measured.
pub fn check(root: &Table<'_>, reads: &[&LiveSection], workload: &Workload) {
    let warm_up = |live: &Live| (live.train, live.clients, live.profile);
    let mut all = reads.iter().filter_map(|read| Some((read.span, warm_up(read.live.as_ref()?))));
    let first = all.next();
    for (span, _) in all.filter(|(_, other)| first.is_some_and(|(_, first)| first != *other)) {
        let message = "candidates with `live` have different warm-ups";
        let help = "set the same `train`, `clients` and `profile` in each `live`";
        root.problem(span, message, help);
    }
    for read in reads {
        let (Some(live), Some(span)) = (&read.live, read.clients) else { continue };
        if let Some(clients) = live.clients.filter(|one| !workload.clients.contains(one)) {
            let measured: Vec<String> = workload.clients.iter().map(u32::to_string).collect();
            let message = format!("{clients} clients are not measured");
            let help = format!("`clients` of [workload] has {}", measured.join(", "));
            root.problem(span, message, help);
        }
    }
}

/// Checks `samples_of`: a build that is sampled for BOLT, and the same build before BOLT.
pub fn check_samples(root: &Table<'_>, candidates: &[CandidateSection<'_>]) {
    for own in candidates {
        let Some(read) = &own.live else { continue };
        let Some((live, span)) = read.live.as_ref().zip(read.samples_of) else { continue };
        let name = live.samples_of.as_deref().unwrap_or_default();
        let Some(other) = candidates.iter().find(|other| other.name == Some(name)) else {
            let names: Vec<&str> = candidates.iter().filter_map(|one| one.name).collect();
            root.problem(span, format!("unknown candidate `{name}`"), did_you_mean(name, &names));
            continue;
        };
        // Problems of invalid candidates were already reported.
        let (Some(own), Some(other)) = (&own.complete, &other.complete) else { continue };
        if !is_sampled_for_bolt(other) {
            let help = "it needs `bolt = true` and `bolt_profile = \"samples\"`";
            root.problem(span, format!("`{name}` is not sampled for BOLT"), help);
        } else if !is_before_bolt(own, other) {
            let message =
                format!("`{}` is not the build that BOLT optimizes for `{name}`", own.name);
            let help = format!("use the settings of `{name}`, with `bolt = false`");
            root.problem(span, message, help);
        }
    }
}

fn is_sampled_for_bolt(candidate: &Candidate) -> bool {
    let training = candidate.system.build().filter(|build| build.bolt);
    let training = training.and_then(|build| build.training.as_ref());
    training.is_some_and(|training| training.bolt_profile == BoltProfileMethod::Samples)
}

/// Whether `other` is the same build before BOLT.
fn is_before_bolt(own: &Candidate, other: &Candidate) -> bool {
    let (System::Private(server), System::Private(others)) = (&own.system, &other.system) else {
        return false;
    };
    let (Some(build), Some(laid_out)) = (&server.build, &others.build) else { return false };
    let what = |training: &Training| (training.words.clone(), training.time);
    // Without `training` there is no PGO profile.
    let trained_alike = build.training.is_none()
        || build.training.as_ref().map(what) == laid_out.training.as_ref().map(what);
    let with_bolt = Build { bolt: true, training: laid_out.training.clone(), ..build.clone() };
    !build.bolt && trained_alike && with_bolt == *laid_out && server.engine == others.engine
}

/// Rejects `live` in an insert benchmark, which has no warm-up.
pub fn refuse_beside_inserts(root: &Table<'_>, reads: &[&LiveSection]) {
    for read in reads.iter().filter(|read| read.live.is_some()) {
        let message = "`live` cannot be used in an insert benchmark";
        let help = "remove `live`";
        root.problem(read.span, message, help);
    }
}
