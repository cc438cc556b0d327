//! Stacks of samples, added up.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use dbdyno_machine::Mapping;
use dbdyno_types::profile::{Frame, Function, ModuleBuild, Profile, Stack};
use framehop::{CacheNative, FrameAddress, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder};

use crate::kernel::{KERNEL, KernelSymbols};
use crate::module::{Files, Space, code_of, memory};
use crate::names::demangled;
use crate::sampler::{DUMP, Sample, Sampler, UserStack};

/// The module of code that is in no file, such as what PostgreSQL compiles for a query.
pub(crate) const ANONYMOUS: &str = "[anonymous]";

/// Frames of a stack at most.
const DEEPEST: usize = 256;

/// Bytes of a page at least.
const PAGE: usize = 4 << 10;

/// Collects the samples of processes. Its default reads the names of the kernel's functions.
#[derive(Default)]
pub struct Collector {
    files: Files,
    spaces: HashMap<Vec<Mapping>, Rc<Space>>,
    of_process: HashMap<u32, Rc<Space>>,
    pub(crate) kernel: KernelSymbols,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// The frames at addresses of spaces, which are never removed.
    frames: HashMap<(*const Space, u64), Rc<[Frame]>>,
    modules: BTreeSet<ModuleBuild>,
    numbers: HashMap<Function, Frame>,
    stacks: HashMap<Vec<Frame>, u64>,
    profile: Profile,
}

impl Collector {
    /// Adds what was sampled of these processes since the last call.
    pub fn collect(&mut self, sampler: &mut Sampler, pids: &HashSet<u32>) {
        sampler.drain(pids, |sample| self.add(&sample));
        self.profile.lost = self.profile.lost.saturating_add(std::mem::take(&mut sampler.lost));
    }

    /// All that was collected, and begins anew.
    pub fn take(&mut self) -> Profile {
        let mut functions: Vec<(Function, Frame)> = self.numbers.drain().collect();
        functions.sort_by_key(|(_, number)| *number);
        let stacks = self.stacks.drain();
        let mut stacks: Vec<Stack> =
            stacks.map(|(frames, samples)| Stack { frames, samples }).collect();
        stacks.sort_by(|a, b| a.frames.cmp(&b.frames));
        let functions = functions.into_iter().map(|(function, _)| function).collect();
        self.frames.clear();
        let modules = std::mem::take(&mut self.modules).into_iter().collect();
        Profile { functions, modules, stacks, ..std::mem::take(&mut self.profile) }
    }

    fn add(&mut self, sample: &Sample<'_>) {
        let frames = self.frames(sample);
        self.profile.samples += 1;
        *self.stacks.entry(frames).or_default() += 1;
    }

    /// The stack of a sample, the innermost function first. [`Self::take`] returns the functions.
    pub(crate) fn frames(&mut self, sample: &Sample<'_>) -> Vec<Frame> {
        let mut frames: Vec<Frame> = Vec::new();
        for address in &sample.kernel {
            let name = self.kernel.name(*address).map(str::to_owned);
            frames.push(self.kernel_function(name));
        }
        if let Some(user) = &sample.user {
            let space = self.space(sample.pid);
            let is_whole = self.unwind(&space, user, &mut frames);
            self.profile.cut += u64::from(!is_whole);
            if !is_whole && user.bytes.len() < DUMP as usize {
                map_stack(sample.pid, user.sp);
            }
        }
        frames
    }

    /// Adds the frames of a user's stack. Returns whether its start was reached.
    fn unwind(&mut self, space: &Rc<Space>, user: &UserStack<'_>, frames: &mut Vec<Frame>) -> bool {
        let mut read = |address: u64| -> Result<u64, ()> {
            let at = usize::try_from(address.checked_sub(user.sp).ok_or(())?).map_err(|_| ())?;
            let bytes = user.bytes.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_ne_bytes(bytes.try_into().map_err(|_| ())?))
        };
        let mut cache = std::mem::take(&mut self.cache);
        let mut addresses = Vec::new();
        let mut all = space.unwinder.iter_frames(user.ip, user.registers(), &mut cache, &mut read);
        let has_ended = loop {
            match all.next() {
                Ok(Some(_)) if addresses.len() == DEEPEST => break false,
                Ok(Some(frame)) => addresses.push(frame),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        self.cache = cache;
        let mut outermost = None;
        for frame in addresses {
            let address = match frame {
                FrameAddress::InstructionPointer(address) => address,
                // The call is before it.
                FrameAddress::ReturnAddress(address) => address.get() - 1,
            };
            frames.extend_from_slice(&self.frames_at(space, address));
            outermost = Some(address);
        }
        // The unwinder also ends where it lost its way.
        has_ended && outermost.is_some_and(|address| space.is_start(address))
    }

    /// The functions at an address, inlined ones first.
    fn frames_at(&mut self, space: &Rc<Space>, address: u64) -> Rc<[Frame]> {
        let key = (Rc::as_ptr(space), address);
        if let Some(known) = self.frames.get(&key) {
            return Rc::clone(known);
        }
        if let Some((module, _)) = space.find(address) {
            let (module, build) = (module.name.clone(), module.build().to_owned());
            self.modules.insert(ModuleBuild { module, build });
        }
        let found: Rc<[Frame]> =
            functions(space, address).into_iter().map(|one| self.number(one)).collect();
        self.frames.insert(key, Rc::clone(&found));
        found
    }

    /// The number of a function of the kernel.
    pub(crate) fn kernel_function(&mut self, name: Option<String>) -> Frame {
        self.number(Function { module: KERNEL.to_owned(), name, source: None, start: 0 })
    }

    fn number(&mut self, function: Function) -> Frame {
        let next = self.numbers.len() as Frame;
        *self.numbers.entry(function).or_insert(next)
    }

    fn space(&mut self, pid: u32) -> Rc<Space> {
        if let Some(known) = self.of_process.get(&pid) {
            return Rc::clone(known);
        }
        let mappings = code_of(pid);
        let Self { files, spaces, .. } = self;
        let space = spaces
            .entry(mappings)
            .or_insert_with_key(|mappings| Rc::new(Space::of(pid, mappings, files)));
        self.of_process.insert(pid, Rc::clone(space));
        Rc::clone(space)
    }
}

impl UserStack<'_> {
    #[cfg(target_arch = "x86_64")]
    fn registers(&self) -> UnwindRegsNative {
        UnwindRegsNative::new(self.ip, self.sp, self.bp)
    }

    #[cfg(target_arch = "aarch64")]
    fn registers(&self) -> UnwindRegsNative {
        UnwindRegsNative::new(self.lr, self.sp, self.bp)
    }
}

/// The functions at an address, the innermost first: those that were inlined, and the one that has their code.
fn functions(space: &Space, address: u64) -> Vec<Function> {
    let function = |module: &str, name: Option<String>, source: Option<String>, start: u64| {
        Function { module: module.to_owned(), name, source, start }
    };
    let Some((module, code)) = space.find(address) else {
        return vec![function(ANONYMOUS, None, None, 0)];
    };
    let mut inlined = module.debug_functions(address);
    let (name, source) = inlined.pop().map(|one| (one.symbol, one.source)).unzip();
    let name = code.and_then(|code| space.symbol(module, code)).or(name.as_deref()).map(demangled);
    let known = code.and_then(|code| code.source.as_deref()).map(str::to_owned);
    let start = code.map_or(0, |code| code.range.start);
    let inlined = inlined
        .into_iter()
        .map(|one| function(&module.name, Some(demangled(&one.symbol)), one.source, 0));
    inlined.chain([function(&module.name, name, source.flatten().or(known), start)]).collect()
}

/// Reads from each page of a stack that could not be copied. Pages that were never written to, such as those of a large
/// buffer, are mapped by that, and later copies do not end there.
fn map_stack(pid: u32, sp: u64) {
    let Ok(memory) = memory(pid) else { return };
    for at in (0..=u64::from(DUMP)).step_by(PAGE) {
        // Above the stack there may be nothing.
        let _ = memory.read_at(&mut [0], sp.wrapping_add(at));
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::sampler::ProfileError;

    #[inline(never)]
    fn burn(until: Instant) -> u64 {
        let mut sum = 0_u64;
        while Instant::now() < until {
            for number in 0..10_000 {
                sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
            }
        }
        sum
    }

    #[test]
    fn own_stacks_are_sampled_to_their_start() {
        let cpus: Vec<usize> = (0..thread::available_parallelism().unwrap().get()).collect();
        let mut sampler = match Sampler::on_cpus(&cpus, 997) {
            Ok(sampler) => sampler,
            Err(error @ (ProfileError::NotPermitted { .. } | ProfileError::Blocked(_))) => {
                return dbdyno_fuzz::skip(&error.to_string());
            }
            Err(error) => panic!("{error}"),
        };
        let mut collector = Collector::default();
        let own = HashSet::from([std::process::id()]);
        let mut burning: Vec<Stack> = Vec::new();
        // On a busy machine this thread may get little of a CPU, and other tests are threads of this process, too.
        for _ in 0..50 {
            sampler.enable().unwrap();
            black_box(burn(Instant::now() + Duration::from_millis(100)));
            sampler.disable().unwrap();
            collector.collect(&mut sampler, &own);
            let profile = collector.take();
            let is_burn = |frame: &Frame| {
                let name = profile.functions[*frame as usize].name.as_deref();
                name.is_some_and(|name| name.contains("stacks::tests::burn"))
            };
            burning = profile
                .stacks
                .iter()
                .filter(|one| one.frames.iter().any(is_burn))
                .cloned()
                .collect();
            if burning.iter().map(|stack| stack.samples).sum::<u64>() >= 10 {
                break;
            }
        }
        let samples: u64 = burning.iter().map(|stack| stack.samples).sum();
        assert!(samples >= 10, "{burning:?}");
        let outermost = burning[0].frames.last();
        assert!(burning.iter().all(|stack| stack.frames.last() == outermost), "{burning:?}");
        let deepest = burning.iter().map(|stack| stack.frames.len()).max();
        assert!(deepest.unwrap() > 5, "{burning:?}");
    }
}
