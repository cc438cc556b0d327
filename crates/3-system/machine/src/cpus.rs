//! Sets of CPUs, the topology of the machine, and pinning to CPUs.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::FsRoot;
use crate::proc_stat::read_lossy;

/// The highest accepted CPU number, twice the limit of Linux: a mistyped range must not fill the
/// memory.
const HIGHEST: u32 = 16_383;

/// A set of CPUs, by the kernel's numbers. Written like `0-3,6`, as the kernel writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(Vec<u32>);

impl CpuSet {
    /// The online CPUs, from `/sys/devices/system/cpu/online`.
    pub fn online() -> Option<Self> {
        Self::online_at(&FsRoot::this_machine())
    }

    pub(crate) fn online_at(root: &FsRoot) -> Option<Self> {
        root.value("sys/devices/system/cpu/online")
    }

    /// The CPUs that the calling thread may run on: its affinity, within its control group's.
    pub fn allowed() -> io::Result<Self> {
        // The kernel refuses a mask shorter than its own and does not return its length. rustix's
        // CpuSet holds 1024 CPUs only.
        let mut words = vec![0_u64; 16];
        loop {
            let size = words.len() * 8;
            // SAFETY: `words` has `size` bytes that may be written to.
            let status = unsafe { libc::sched_getaffinity(0, size, words.as_mut_ptr().cast()) };
            if status >= 0 {
                return Ok(CpuMask(words).cpus());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINVAL) || size as u32 * 8 > HIGHEST {
                return Err(error);
            }
            words.resize(words.len() * 2, 0);
        }
    }

    /// The CPUs that the threads of the process `pid` may run on.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        let mut all = Vec::new();
        for thread in threads_of(pid)? {
            let status = match read_lossy(&format!("/proc/{pid}/task/{thread}/status")) {
                // Threads may end at any time.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                status => status?,
            };
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            let set = list.and_then(|list| list.trim().parse::<Self>().ok());
            all.extend(set.ok_or(io::ErrorKind::InvalidData)?.iter());
        }
        if all.is_empty() {
            Err(io::ErrorKind::NotFound.into())
        } else {
            Ok(all.into_iter().collect())
        }
    }

    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    pub fn intersection(&self, other: &Self) -> Self {
        self.iter().filter(|cpu| other.contains(*cpu)).collect()
    }

    pub fn difference(&self, other: &Self) -> Self {
        self.iter().filter(|cpu| !other.contains(*cpu)).collect()
    }

    pub fn mask(&self) -> CpuMask {
        let words = self.0.last().map_or(0, |highest| *highest as usize / 64 + 1);
        let mut mask = vec![0_u64; words];
        for cpu in self.iter() {
            mask[cpu as usize / 64] |= 1 << (cpu % 64);
        }
        CpuMask(mask)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
}

/// Formats the set so that it can be parsed again: `0-3,6`; an empty set is the empty string.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs: Vec<String> = self
            .0
            .chunk_by(|cpu, next| cpu + 1 == *next)
            .map(|run| match run {
                [first, .., last] => format!("{first}-{last}"),
                [..] => run.first().map_or_else(String::new, u32::to_string),
            })
            .collect();
        f.pad(&runs.join(","))
    }
}

/// A text that is not a set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CpuSetError {
    /// A part is neither a number nor two numbers with a dash.
    #[error("`{0}` is neither a CPU number nor a range; write a set of CPUs like 0-3,6")]
    NotACpu(String),
    /// A range whose end is below its start.
    #[error("the range `{0}` of CPUs ends before it starts")]
    Backwards(String),
    #[error("`{0}`: CPU numbers go up to {HIGHEST}")]
    TooHigh(String),
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let mut cpus = Vec::new();
        for part in text.split(',').map(str::trim) {
            let number = |digits: &str| {
                let number = digits.trim().parse::<u32>();
                let number = number.map_err(|_| CpuSetError::NotACpu(part.to_owned()))?;
                (number <= HIGHEST)
                    .then_some(number)
                    .ok_or_else(|| CpuSetError::TooHigh(part.to_owned()))
            };
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if last < first {
                return Err(CpuSetError::Backwards(part.to_owned()));
            }
            cpus.extend(first..=last);
        }
        Ok(cpus.into_iter().collect())
    }
}

impl TryFrom<String> for CpuSet {
    type Error = CpuSetError;

    fn try_from(text: String) -> Result<Self, CpuSetError> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(cpus: CpuSet) -> Self {
        cpus.to_string()
    }
}

/// Which CPUs share a core, and the numbers of sockets and NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The cores, each as the set of its hardware threads, ordered by first CPU.
    pub cores: Vec<CpuSet>,
    /// Number of sockets with CPUs; `None` if unknown.
    pub sockets: Option<usize>,
    /// Number of NUMA nodes with CPUs; `None` if unknown.
    pub numa_nodes: Option<usize>,
}

impl Topology {
    /// Read the topology of the online CPUs from `sys/devices/system`.
    ///
    /// A CPU with unknown topology counts as a separate core.
    pub fn read(root: &FsRoot) -> Self {
        let online = CpuSet::online_at(root).unwrap_or_default();
        let mut cores: Vec<CpuSet> = Vec::new();
        let mut packages = BTreeSet::new();
        for cpu in online.iter() {
            let place = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            // -1 if the firmware does not tell.
            packages.extend(root.value::<u32>(&format!("{place}/physical_package_id")));
            if cores.iter().any(|core| core.contains(cpu)) {
                continue;
            }
            // Since Linux 5.4 the preferred name is core_cpus_list; the old one remains as an
            // alias.
            let siblings: Option<CpuSet> = root.value(&format!("{place}/thread_siblings_list"));
            let siblings = siblings.unwrap_or_default().intersection(&online);
            let taken = siblings.iter().any(|it| cores.iter().any(|core| core.contains(it)));
            let alone = taken || !siblings.contains(cpu);
            cores.push(if alone { CpuSet::from_iter([cpu]) } else { siblings });
        }
        let nodes: Option<CpuSet> = root.value("sys/devices/system/node/has_cpu");
        let known = |count: usize| (count > 0).then_some(count);
        Self {
            cores,
            sockets: known(packages.len()),
            numa_nodes: nodes.and_then(|nodes| known(nodes.len())),
        }
    }

    /// Whether some core has more than one thread; `None` if no core is known.
    pub fn has_smt(&self) -> Option<bool> {
        (!self.cores.is_empty()).then(|| self.cores.iter().any(|core| core.len() > 1))
    }

    /// The cores restricted to `allowed`, plus a core for each allowed CPU with unknown topology.
    pub(crate) fn cores_within(&self, allowed: &CpuSet) -> Vec<CpuSet> {
        let mut cores: Vec<CpuSet> =
            self.cores.iter().map(|core| core.intersection(allowed)).collect();
        for cpu in allowed.iter() {
            if !self.cores.iter().any(|core| core.contains(cpu)) {
                cores.push(CpuSet::from_iter([cpu]));
            }
        }
        cores.retain(|core| !core.is_empty());
        cores.sort_by_key(CpuSet::first);
        cores
    }
}

/// A CPU mask for the kernel. Pinning with it does not allocate.
///
/// Not rustix's `CpuSet`, which is limited to 1024 CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuMask(pub(crate) Vec<u64>);

impl CpuMask {
    /// Pins the calling thread, and all threads and processes that it starts later, to these CPUs.
    ///
    /// A single system call, so it may run between `fork` and `exec`
    /// ([`std::os::unix::process::CommandExt::pre_exec`]). A server started this way allocates
    /// its first memory near its CPUs.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` if this thread may use none of the CPUs.
    pub fn pin_current_thread(&self) -> io::Result<()> {
        self.pin(0)
    }

    fn pin(&self, thread: libc::pid_t) -> io::Result<()> {
        // SAFETY: the mask has the number of bytes that is given, and is only read.
        let status =
            unsafe { libc::sched_setaffinity(thread, self.0.len() * 8, self.0.as_ptr().cast()) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(crate) fn cpus(&self) -> CpuSet {
        let bits = (0_u32..).zip(&self.0).flat_map(|(index, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index * 64 + bit)
        });
        bits.collect()
    }
}

/// A thread or process could not be pinned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The set of CPUs is empty.
    #[error("cannot pin {who} to an empty set of CPUs")]
    Empty {
        /// The thread or process.
        who: String,
    },
    /// None of the CPUs may be used.
    #[error("cannot pin {who} to CPUs {cpus}: none of them may be used here (allowed: {allowed})")]
    NotAllowed {
        who: String,
        /// The requested CPUs.
        cpus: CpuSet,
        /// The allowed CPUs, or why they are unknown.
        allowed: String,
    },
    #[error("cannot pin {who} to CPUs {cpus}: there is no such process")]
    Gone { who: String, cpus: CpuSet },
    /// Another error; for other users' processes mostly a missing permission.
    #[error("cannot pin {who} to CPUs {cpus}: {source}")]
    Refused { who: String, cpus: CpuSet, source: io::Error },
}

/// Pins the calling thread, and all threads and processes that it starts later, to `cpus`.
///
/// # Errors
/// If none of `cpus` may be used, the error lists the allowed CPUs.
pub fn pin_current_thread(cpus: &CpuSet) -> Result<(), PinError> {
    pin("this thread", cpus, || cpus.mask().pin_current_thread())
}

/// Calls `work` with the calling thread pinned to `cpus`, and then gives back the CPUs that it had.
///
/// # Errors
/// As [`pin_current_thread`]; nothing was called then.
pub fn while_pinned<T>(cpus: &CpuSet, work: impl FnOnce() -> T) -> Result<T, PinError> {
    let before = CpuSet::allowed();
    pin_current_thread(cpus)?;
    let done = work();
    // Fails only if all of them have been taken from the process meanwhile.
    let _ = before.map(|before| pin_current_thread(&before));
    Ok(done)
}

/// Pins all threads of the process `pid`, and those they start later, to `cpus`.
///
/// The kernel pins single threads, so this repeats until there is no new thread. Existing child
/// processes are not pinned.
///
/// # Errors
/// [`PinError::Gone`] if there is no such process; also see [`pin_current_thread`].
pub fn pin_process(pid: u32, cpus: &CpuSet) -> Result<(), PinError> {
    let mask = cpus.mask();
    pin(&format!("process {pid}"), cpus, || {
        let mut pinned: Vec<u32> = Vec::new();
        loop {
            let mut threads = threads_of(pid)?;
            threads.retain(|thread| !pinned.contains(thread));
            if threads.is_empty() {
                return Ok(());
            }
            for thread in threads {
                match mask.pin(thread.cast_signed()) {
                    // Threads other than the main one may end at any time.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) && thread != pid => {}
                    result => result?,
                }
                pinned.push(thread);
            }
        }
    })
}

/// The thread IDs of a process, in ascending order, from `/proc/PID/task`.
pub fn threads_of(pid: u32) -> io::Result<Vec<u32>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        threads.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    threads.sort_unstable();
    Ok(threads)
}

fn pin(who: &str, cpus: &CpuSet, act: impl FnOnce() -> io::Result<()>) -> Result<(), PinError> {
    let who = who.to_owned();
    if cpus.is_empty() {
        return Err(PinError::Empty { who });
    }
    act().map_err(|source| match source.raw_os_error() {
        Some(libc::EINVAL) => PinError::NotAllowed {
            who,
            cpus: cpus.clone(),
            allowed: CpuSet::allowed()
                .map_or_else(|error| error.to_string(), |set| set.to_string()),
        },
        Some(libc::ESRCH | libc::ENOENT) => PinError::Gone { who, cpus: cpus.clone() },
        _ => PinError::Refused { who, cpus: cpus.clone(), source },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fs_root::fixture::Fixture;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn parses_the_kernels_format() {
        assert_eq!(set("0-3,6"), CpuSet(vec![0, 1, 2, 3, 6]));
        assert_eq!(set(" 6, 0 - 1 ,1\n"), CpuSet(vec![0, 1, 6]));
        assert_eq!(set(""), CpuSet::default());
        assert_eq!(set("0-3,6").to_string(), "0-3,6");
        assert_eq!(set("1,3,4").to_string(), "1,3-4");
        assert_eq!(CpuSet::default().to_string(), "");
    }

    #[test]
    fn parse_errors_name_the_part() {
        let error = |text: &str| text.parse::<CpuSet>().unwrap_err();
        assert_eq!(error("0,x"), CpuSetError::NotACpu("x".into()));
        assert_eq!(error("0,,1"), CpuSetError::NotACpu(String::new()));
        assert_eq!(error("-1"), CpuSetError::NotACpu("-1".into()));
        assert_eq!(error("3-1"), CpuSetError::Backwards("3-1".into()));
        assert_eq!(error("0-4000000000"), CpuSetError::TooHigh("0-4000000000".into()));
    }

    #[test]
    fn cpus_of_a_process_are_those_of_its_threads() {
        let allowed = CpuSet::allowed().unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let all = CpuSet::of_process(child.id());
        let first: CpuSet = allowed.first().into_iter().collect();
        pin_process(child.id(), &first).unwrap();
        let pinned = CpuSet::of_process(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(all.unwrap(), allowed);
        assert_eq!(pinned.unwrap(), first);
        CpuSet::of_process(child.id()).unwrap_err();
    }

    #[test]
    fn difference_and_intersection() {
        assert_eq!(set("0-3").difference(&set("1,9")), set("0,2-3"));
        assert_eq!(set("0-3").intersection(&set("1,9")), set("1"));
    }

    #[test]
    fn json_is_the_text_form() {
        let json = serde_json::to_string(&set("0-3,6")).unwrap();
        assert_eq!(json, "\"0-3,6\"");
        assert_eq!(serde_json::from_str::<CpuSet>(&json).unwrap(), set("0-3,6"));
        assert!(serde_json::from_str::<CpuSet>("\"x\"").is_err());
    }

    #[test]
    fn at_least_one_cpu_is_allowed() {
        let allowed = CpuSet::allowed().unwrap();
        assert!(!allowed.is_empty());
        if let Some(online) = CpuSet::online() {
            assert_eq!(allowed.difference(&online), CpuSet::default());
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_set_or_an_error(text in ".{0,40}") {
            let _ = text.parse::<CpuSet>();
        }

        #[test]
        fn any_set_parses_back(cpus in prop::collection::vec(0_u32..300, 0..40)) {
            let cpus: CpuSet = cpus.into_iter().collect();
            prop_assert_eq!(&cpus.to_string().parse::<CpuSet>().unwrap(), &cpus);
            prop_assert_eq!(&cpus.mask().cpus(), &cpus);
        }
    }

    #[test]
    fn two_cores_with_two_threads_are_read() {
        let tree = Fixture::new(&[
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/node/has_cpu", "0\n"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2\n"),
            ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,3\n"),
            ("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "0,2\n"),
            ("sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "1,3\n"),
            ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
            ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n"),
        ]);
        let topology = Topology::read(&tree.root());
        let cores: Vec<String> = topology.cores.iter().map(CpuSet::to_string).collect();
        assert_eq!(cores, ["0,2", "1,3"]);
        assert_eq!(topology.has_smt(), Some(true));
        assert_eq!((topology.sockets, topology.numa_nodes), (Some(1), Some(1)));
    }

    #[test]
    fn cpu_with_unknown_topology_is_a_separate_core() {
        let tree = Fixture::new(&[("sys/devices/system/cpu/online", "0-1\n")]);
        let topology = Topology::read(&tree.root());
        assert_eq!(topology.cores.len(), 2);
        assert_eq!((topology.sockets, topology.numa_nodes), (None, None));
        let package = ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "-1\n");
        let tree = Fixture::new(&[("sys/devices/system/cpu/online", "0\n"), package]);
        assert_eq!(Topology::read(&tree.root()).sockets, None);
        assert_eq!(Topology::read(&Fixture::new(&[]).root()).has_smt(), None);
    }

    #[test]
    fn pinned_thread_has_the_new_affinity() {
        std::thread::spawn(|| {
            let one: CpuSet = CpuSet::allowed().unwrap().first().into_iter().collect();
            pin_current_thread(&one).unwrap();
            assert_eq!(CpuSet::allowed().unwrap(), one);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn thread_has_its_affinity_again_after_the_work() {
        let all = CpuSet::allowed().unwrap();
        let one: CpuSet = all.first().into_iter().collect();
        assert_eq!(while_pinned(&one, || CpuSet::allowed().unwrap()).unwrap(), one);
        assert_eq!(CpuSet::allowed().unwrap(), all);
    }

    #[test]
    fn pins_another_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let last: CpuSet = CpuSet::allowed().unwrap().iter().last().into_iter().collect();
        let result = pin_process(child.id(), &last);
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        result.unwrap();
        assert!(status.unwrap().contains(&format!("Cpus_allowed_list:\t{last}\n")));
        let error = pin_process(child.id(), &last).unwrap_err();
        assert!(matches!(error, PinError::Gone { .. }), "{error}");
    }

    #[test]
    fn errors_list_the_allowed_cpus() {
        let error = pin_current_thread(&set("16000")).unwrap_err().to_string();
        let allowed = CpuSet::allowed().unwrap();
        assert_eq!(
            error,
            format!(
                "cannot pin this thread to CPUs 16000: none of them may be used here (allowed: {allowed})"
            )
        );
        assert!(matches!(pin_current_thread(&set("")), Err(PinError::Empty { .. })));
    }
}
