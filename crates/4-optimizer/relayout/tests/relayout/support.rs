//! Test libraries: compiled, loaded into this process, copied and called.

use std::path::{Path, PathBuf};
use std::process::Command;

use dbdyno_relayout::{
    AddressSpace, Module, Options, RegionRequest, Relayout, Samples, optimize, verify,
};

/// A function of a test library.
pub type Case = unsafe extern "C-unwind" fn(u64, u64, *mut u8) -> u64;

/// A test library in this process.
pub struct Victim {
    // Keeps it loaded.
    _library: libloading::Library,
    pub module: Module,
    /// Names and addresses of its `case_*` functions.
    pub cases: Vec<(String, u64)>,
}

/// Compiles a shared library. Panics with the compiler's messages.
pub fn compile(compiler: &str, source: &Path, arguments: &[&str], out: &Path) {
    let output = Command::new(compiler)
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(out)
        .args(arguments)
        .arg(source)
        .output()
        .unwrap_or_else(|error| {
            panic!("{compiler}: {error}; install the Debian packages gcc, g++ and clang")
        });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The path of a test library's source.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victims").join(name)
}

impl Victim {
    /// Loads a shared library.
    pub fn load(path: &Path) -> Self {
        let file = std::fs::read(path).unwrap();
        let at_zero = Module::parse("victim", &file, 0).unwrap();
        let names: Vec<(String, u64)> = at_zero
            .functions()
            .iter()
            .filter_map(|function| {
                let name = at_zero.symbol_at(function.start)?;
                name.starts_with("case_").then(|| (name.to_owned(), function.start))
            })
            .filter(|(name, _)| !name.contains('.'))
            .collect();
        // SAFETY: test libraries have no initializers except the C++ library's.
        let library = unsafe { libloading::Library::new(path) }.unwrap();
        let (name, offset) = &names[0];
        // SAFETY: only its address is used.
        let address = unsafe { library.get::<Case>(name.as_bytes()) }.map(|case| *case as usize);
        let bias = address.unwrap() as u64 - offset;
        let module = Module::parse("victim", &file, bias).unwrap();
        let cases = names.into_iter().map(|(name, offset)| (name, offset + bias)).collect();
        Self { _library: library, module, cases }
    }

    /// Copies the sampled functions into this process's memory.
    pub fn install(&self, samples: &Samples, options: &Options) -> InstalledLayout {
        let relayout =
            optimize(&[&self.module], samples, options, &mut ThisProcess::default()).unwrap();
        if let Err(difference) = verify(&[&self.module], &relayout) {
            panic!("{difference}");
        }
        InstalledLayout::install(relayout)
    }

    /// One sample at the start of every function.
    pub fn sample_all(&self) -> Samples {
        let mut samples = Samples::default();
        for function in self.module.functions() {
            samples.add_hit(function.start, 1);
        }
        samples
    }
}

/// The address space of this process. Counters are before the code.
#[derive(Default)]
struct ThisProcess {
    counters: Option<u64>,
}

impl AddressSpace for ThisProcess {
    fn reserve(&mut self, request: &RegionRequest) -> Option<u64> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let counters = request.counters.next_multiple_of(4096);
        let mut at = request.latest & !0xfff;
        while at >= request.earliest {
            // SAFETY: maps new memory only; fails if the range is in use.
            let got = unsafe {
                let size = (counters + request.size) as usize;
                libc::mmap(
                    (at - counters) as *mut _,
                    size,
                    libc::PROT_READ | libc::PROT_WRITE,
                    flags,
                    -1,
                    0,
                )
            };
            if got as u64 == at - counters {
                self.counters = Some(at - counters);
                return Some(at);
            }
            at -= 1 << 20;
        }
        None
    }

    fn counters(&self, _module: usize) -> Option<u64> {
        self.counters
    }

    fn read_slot(&self, address: u64) -> Option<u64> {
        // SAFETY: slots of a loaded library are readable and stay so.
        Some(unsafe { std::ptr::read_volatile(address as *const u64) })
    }
}

unsafe extern "C" {
    fn __register_frame_info(begin: *const u8, object: *mut u8);
    fn __deregister_frame_info(begin: *const u8) -> *mut u8;
}

/// A layout in this process's memory.
pub struct InstalledLayout {
    pub relayout: Relayout,
    /// The unwinder's data about each frame section; must not move.
    _objects: Box<[[u64; 8]]>,
}

impl InstalledLayout {
    fn install(relayout: Relayout) -> Self {
        for region in &relayout.regions {
            let protection = libc::PROT_READ | libc::PROT_EXEC;
            // SAFETY: the memory was mapped for these regions, and nothing else uses it.
            unsafe {
                let to = region.address as *mut u8;
                std::ptr::copy_nonoverlapping(region.bytes.as_ptr(), to, region.bytes.len());
                assert_eq!(0, libc::mprotect(to.cast(), region.bytes.len(), protection));
            }
        }
        let mut objects = vec![[0; 8]; relayout.frames.len()].into_boxed_slice();
        for (section, object) in relayout.frames.iter().zip(&mut objects) {
            // SAFETY: the section is complete, and the object lives until it is deregistered.
            unsafe {
                __register_frame_info(section.address as *const u8, object.as_mut_ptr().cast());
            }
        }
        Self { relayout, _objects: objects }
    }

    /// The copy of a function.
    pub fn copy(&self, address: u64) -> Option<Case> {
        let copy = self.relayout.map.to_copy(address)?;
        // SAFETY: the copy of a function is a function of the same type.
        Some(unsafe { std::mem::transmute::<usize, Case>(copy as usize) })
    }

    /// Blocks and their counts.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        let counters = self.relayout.counters.iter();
        // SAFETY: counters are in memory that was mapped for them.
        let read = |at| unsafe { std::ptr::read_volatile(at as *const u32) };
        counters.map(|it| (it.block, read(it.address).into())).collect()
    }

    /// Writes the patches or the original bytes.
    pub fn set_patched(&self, on: bool) {
        for entry in &self.relayout.entries {
            let page = entry.address & !0xfff;
            let size = (entry.address + 5 - page) as usize;
            let bytes = if on { entry.patch } else { entry.original };
            // SAFETY: no other thread runs this code, and the protection is restored.
            unsafe {
                let writable = libc::PROT_READ | libc::PROT_WRITE;
                assert_eq!(0, libc::mprotect(page as *mut _, size, writable));
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), entry.address as *mut u8, 5);
                let executable = libc::PROT_READ | libc::PROT_EXEC;
                assert_eq!(0, libc::mprotect(page as *mut _, size, executable));
            }
        }
    }
}

impl Drop for InstalledLayout {
    fn drop(&mut self) {
        for section in &self.relayout.frames {
            // SAFETY: registered by `install`.
            unsafe { __deregister_frame_info(section.address as *const u8) };
        }
    }
}

/// A small generator of random numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Calls a case with a new buffer. Returns its result and the buffer.
pub fn call(case: Case, seed: u64) -> (u64, [u8; 64]) {
    let mut random = Random(seed);
    let mut buffer = [0; 64];
    for byte in &mut buffer {
        *byte = random.next() as u8 | 1;
    }
    buffer[63] = 0;
    let (a, b) = (random.next() >> random.below(60), random.next() >> random.below(60));
    // SAFETY: cases take any numbers and 64 bytes.
    let result = unsafe { case(a, b, buffer.as_mut_ptr()) };
    (result, buffer)
}

/// The case at an address.
pub fn case(address: u64) -> Case {
    // SAFETY: the address is that of a `case_*` function of a test library.
    unsafe { std::mem::transmute::<usize, Case>(address as usize) }
}

/// An address space without a process: reserves addresses after the module.
pub struct Nowhere;

impl AddressSpace for Nowhere {
    fn reserve(&mut self, request: &RegionRequest) -> Option<u64> {
        Some(request.latest & !0xfff)
    }

    fn read_slot(&self, _address: u64) -> Option<u64> {
        None
    }
}

/// A C program of random functions `case_r0`, `case_r1`, …, each with bounded run time.
pub fn random_program(seed: u64, functions: u64) -> String {
    let mut random = Random(seed);
    let mut text =
        String::from("#include <stdint.h>\ntypedef uint64_t u64;\ntypedef unsigned char u8;\n");
    for number in 0..functions {
        text += &format!(
            "__attribute__((noinline)) u64 case_r{number}(u64 a, u64 b, u8 *p) {{\n\
             if (p[62] == 0) return a;\np[62]--;\nu64 r = a;\n"
        );
        for _ in 0..4 + random.below(6) {
            statement(&mut random, &mut text, number, 2);
        }
        text += "return r;\n}\n";
    }
    text
}

fn expression(random: &mut Random) -> String {
    let terms = ["a", "b", "r", "p[r & 31]", "p[a & 31]", "17", "(r >> 3)", "(a ^ b)"];
    let operators = ["+", "-", "^", "*", "&", "|"];
    let mut term = || terms[random.below(terms.len() as u64) as usize];
    let (first, second) = (term(), term());
    format!("({first} {} {second})", operators[random.below(6) as usize])
}

fn statement(random: &mut Random, text: &mut String, number: u64, depth: u64) {
    let value = expression(random);
    if depth == 0 {
        *text += &format!("r = r * 3 + {value};\n");
        return;
    }
    match random.below(8) {
        0 | 1 => *text += &format!("r ^= {value};\n"),
        2 => {
            *text += &format!("if ({value} % {} == 1) {{\n", 2 + random.below(5));
            statement(random, text, number, depth - 1);
            *text += "} else {\n";
            statement(random, text, number, depth - 1);
            *text += "}\n";
        }
        3 => {
            *text += &format!("for (u64 i{depth} = 0; i{depth} < ({value} & 7); i{depth}++) {{\n");
            statement(random, text, number, depth - 1);
            if random.below(2) == 0 {
                *text += &format!("if (r % 7 == {}) break;\n", random.below(7));
            }
            *text += "}\n";
        }
        4 => {
            let cases = 5 + random.below(12);
            *text += &format!("switch ({value} % {}) {{\n", cases + random.below(4));
            for case in 0..cases {
                *text += &format!("case {case}:\n");
                statement(random, text, number, depth - 1);
                if random.below(5) > 0 {
                    *text += "break;\n";
                }
            }
            *text += "default: r++;\n}\n";
        }
        5 if number > 0 => {
            let callee = random.below(number);
            *text += &format!("r += case_r{callee}({value}, r, p);\n");
        }
        6 => *text += &format!("if ({value} == {}) return r;\n", random.below(9)),
        _ => *text += &format!("p[{}] += (u8){value};\n", random.below(60)),
    }
}
