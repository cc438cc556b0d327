//! Where a process spent its time.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::Module;

/// One taken branch: where from, where to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Branch {
    /// Address of the branch instruction.
    pub from: u64,
    /// Address it went to.
    pub to: u64,
}

/// How often a branch was recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchCount {
    /// Times it was taken.
    pub taken: u64,
    /// Of those, times it was mispredicted.
    pub mispredicted: u64,
}

/// Where a process spent its time, by absolute address. User space only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    hits: HashMap<u64, u64>,
    branches: HashMap<Branch, BranchCount>,
    calls: HashMap<Branch, u64>,
}

impl Samples {
    /// Adds samples of an instruction pointer.
    pub fn add_hit(&mut self, address: u64, count: u64) {
        *self.hits.entry(address).or_default() += count;
    }

    /// Adds branch records.
    pub fn add_branch(&mut self, branch: Branch, count: BranchCount) {
        let sum = self.branches.entry(branch).or_default();
        sum.taken += count.taken;
        sum.mispredicted += count.mispredicted;
    }

    /// Adds a call chain, innermost first: the sampled address, then return addresses. Only the
    /// calls are added, not the hit.
    pub fn add_chain(&mut self, chain: &[u64], count: u64) {
        for pair in chain.windows(2) {
            *self.calls.entry(Branch { from: pair[1], to: pair[0] }).or_default() += count;
        }
    }

    /// Adds all of another's samples.
    pub fn merge(&mut self, other: &Self) {
        for (&address, &count) in &other.hits {
            self.add_hit(address, count);
        }
        for (&branch, &count) in &other.branches {
            self.add_branch(branch, count);
        }
        for (&call, &count) in &other.calls {
            *self.calls.entry(call).or_default() += count;
        }
    }

    /// The same samples as if the original code had run: `original` says which address an address
    /// in a copy stands for, and leaves all others as they are.
    #[must_use]
    pub fn to_originals(&self, original: impl Fn(u64) -> u64) -> Self {
        let mut led_back = Self::default();
        for (&address, &count) in &self.hits {
            led_back.add_hit(original(address), count);
        }
        for (branch, &count) in &self.branches {
            let branch = Branch { from: original(branch.from), to: original(branch.to) };
            led_back.add_branch(branch, count);
        }
        for (call, &count) in &self.calls {
            let call = Branch { from: original(call.from), to: original(call.to) };
            *led_back.calls.entry(call).or_default() += count;
        }
        led_back
    }

    /// Samples of instruction pointers.
    pub fn hits(&self) -> &HashMap<u64, u64> {
        &self.hits
    }

    /// Branch records.
    pub fn branches(&self) -> &HashMap<Branch, BranchCount> {
        &self.branches
    }

    /// Calls seen in call chains: from a return address to an address in the callee.
    pub fn calls(&self) -> &HashMap<Branch, u64> {
        &self.calls
    }

    /// How many instruction pointers were sampled.
    pub fn total(&self) -> u64 {
        self.hits.values().sum()
    }

    /// The samples in the given modules, in a form that fits any process with the same files.
    pub fn to_profile(&self, modules: &[&Module]) -> Profile {
        let mut profiles: Vec<ModuleProfile> =
            modules.iter().map(|module| ModuleProfile::empty(module)).collect();
        let place = |address: u64| {
            let index = modules.iter().position(|module| module.contains(address))?;
            Some((index, modules[index].to_offset(address)))
        };
        for (&address, &count) in &self.hits {
            if let Some((index, offset)) = place(address) {
                profiles[index].hits.insert(offset, count);
            }
        }
        // Branches and calls between modules are left out: each profile fits one file.
        for (branch, &count) in &self.branches {
            if let (Some((index, from)), Some((to_index, to))) =
                (place(branch.from), place(branch.to))
                && index == to_index
            {
                profiles[index].branches.push((from, to, count));
            }
        }
        for (call, &count) in &self.calls {
            if let (Some((index, from)), Some((to_index, to))) = (place(call.from), place(call.to))
                && index == to_index
            {
                profiles[index].calls.push((from, to, count));
            }
        }
        for profile in &mut profiles {
            profile.branches.sort_unstable_by_key(|&(from, to, _)| (from, to));
            profile.calls.sort_unstable();
        }
        profiles.retain(|profile| !profile.is_empty());
        Profile { modules: profiles }
    }
}

/// Samples by file and offset, to be kept and used elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// One per module with samples.
    pub modules: Vec<ModuleProfile>,
}

/// The samples of one file. Offsets are link-time addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleProfile {
    /// The module's name when the profile was made.
    pub name: String,
    /// The file's build id in hexadecimal. `None`: it has none, and its name must match.
    pub build_id: Option<String>,
    /// Samples per offset.
    pub hits: BTreeMap<u64, u64>,
    /// Taken branches inside the module: from, to, counts.
    pub branches: Vec<(u64, u64, BranchCount)>,
    /// Calls from call chains inside the module: return address, callee, count.
    pub calls: Vec<(u64, u64, u64)>,
}

impl ModuleProfile {
    fn empty(module: &Module) -> Self {
        Self {
            name: module.name().to_owned(),
            build_id: module.build_id().map(str::to_owned),
            hits: BTreeMap::new(),
            branches: Vec::new(),
            calls: Vec::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.hits.is_empty() && self.branches.is_empty() && self.calls.is_empty()
    }

    fn fits(&self, module: &Module) -> bool {
        match (&self.build_id, module.build_id()) {
            (Some(ours), Some(theirs)) => ours == theirs,
            (None, None) => self.name == module.name(),
            _ => false,
        }
    }
}

impl Profile {
    /// The samples as they would be in a process with these modules, and the names of the
    /// profile's modules that no given module fits.
    pub fn to_samples(&self, modules: &[&Module]) -> (Samples, Vec<String>) {
        let mut samples = Samples::default();
        let mut unused = Vec::new();
        for profile in &self.modules {
            let Some(module) = modules.iter().find(|module| profile.fits(module)) else {
                unused.push(profile.name.clone());
                continue;
            };
            for (&offset, &count) in &profile.hits {
                samples.add_hit(module.to_address(offset), count);
            }
            for &(from, to, count) in &profile.branches {
                let branch = Branch { from: module.to_address(from), to: module.to_address(to) };
                samples.add_branch(branch, count);
            }
            for &(from, to, count) in &profile.calls {
                let call = Branch { from: module.to_address(from), to: module.to_address(to) };
                *samples.calls.entry(call).or_default() += count;
            }
        }
        (samples, unused)
    }
}
