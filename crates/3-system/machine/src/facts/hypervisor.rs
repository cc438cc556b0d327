use std::fmt;
use std::fs::File;
use std::io::Read;

use serde::{Deserialize, Serialize};

use crate::fs_root::FsRoot;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hardware {
    /// No hypervisor was detected.
    Real { product: Option<String> },
    /// A virtual machine.
    Virtual {
        hypervisor: Option<String>,
        /// The product name that the virtual machine reports.
        product: Option<String>,
    },
}

impl Hardware {
    /// Whether it is a virtual machine.
    pub const fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual { .. })
    }

    /// Combine the data of the CPU, the firmware and the kernel; `None` if none of them is
    /// available.
    pub(crate) fn read(root: &FsRoot, signature: Option<&str>) -> Option<Self> {
        let maker = root.text("sys/class/dmi/id/sys_vendor");
        let model = root.text("sys/class/dmi/id/product_name");
        let product = match (&maker, &model) {
            (Some(maker), Some(model)) => Some(format!("{maker} {model}")),
            (maker, model) => maker.clone().or_else(|| model.clone()),
        };
        let by_product = product.as_deref().and_then(by_product);
        let by_firmware = is_firecracker(root).then_some("Firecracker");
        let by_kernel = root
            .text("sys/hypervisor/type")
            .or_else(|| root.text("proc/device-tree/hypervisor/compatible"))
            .map(|name| by_kernel(&name));
        let by_cpu = signature.map(by_signature);

        // The firmware names the product, the CPU only the kernel's part of the hypervisor.
        let hypervisor =
            by_firmware.or(by_product).map(str::to_owned).or(by_kernel).or(by_cpu.flatten());
        let flag = hypervisor_flag(root);
        if hypervisor.is_some() || signature.is_some() || flag == Some(true) {
            return Some(Self::Virtual { hypervisor, product });
        }
        // An x86 machine without the flag is physical; on other architectures the manufacturer must
        // be known.
        (flag.is_some() || product.is_some()).then_some(Self::Real { product })
    }
}

/// Formats as `KVM (Amazon EC2 m7i.large)` or `none (Dell Inc. PowerEdge R650)`.
impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, product) = match self {
            Self::Real { product } => ("none", product),
            Self::Virtual { hypervisor, product } => {
                (hypervisor.as_deref().unwrap_or("of unknown name"), product)
            }
        };
        match product {
            Some(product) => f.pad(&format!("{name} ({product})")),
            None => f.pad(name),
        }
    }
}

/// Whether /proc/cpuinfo has the flag; `None` if it has no x86 flags at all.
fn hypervisor_flag(root: &FsRoot) -> Option<bool> {
    let text = root.text("proc/cpuinfo")?;
    let flags = text.lines().find(|line| line.starts_with("flags"))?;
    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

fn by_product(product: &str) -> Option<&'static str> {
    // Bare-metal instances have the same manufacturer.
    if product.starts_with("Amazon EC2") {
        return (!product.contains(".metal")).then_some("KVM");
    }
    let marks = [
        ("Google Compute Engine", "KVM"),
        ("KVM", "KVM"),
        ("QEMU", "QEMU"),
        ("OpenStack", "KVM"),
        ("DigitalOcean Droplet", "KVM"),
        ("VMware", "VMware"),
        ("VirtualBox", "VirtualBox"),
        ("Microsoft Corporation Virtual Machine", "Hyper-V"),
        ("Xen", "Xen"),
        ("Parallels", "Parallels"),
        ("Apple Virtualization", "Apple Virtualization"),
    ];
    marks.into_iter().find(|(mark, _)| product.contains(mark)).map(|(_, name)| name)
}

fn by_signature(signature: &str) -> Option<String> {
    let signature = signature.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    let name = match signature {
        "" => return None,
        "KVMKVMKVM" | "Linux KVM Hv" => "KVM",
        "VMwareVMware" => "VMware",
        "XenVMMXenVMM" => "Xen",
        "Microsoft Hv" => "Hyper-V",
        "TCGTCGTCGTCG" => "QEMU without KVM",
        "VBoxVBoxVBox" => "VirtualBox",
        "bhyve bhyve" => "bhyve",
        "ACRNACRNACRN" => "ACRN",
        other => other,
    };
    Some(name.to_owned())
}

fn by_kernel(name: &str) -> String {
    match name {
        "xen" | "xen,xen" => "Xen".to_owned(),
        "linux,kvm" => "KVM".to_owned(),
        "vmware" => "VMware".to_owned(),
        other => other.to_owned(),
    }
}

/// Firecracker has no DMI tables; its ACPI tables have its name as manufacturer, readable only for
/// root.
fn is_firecracker(root: &FsRoot) -> bool {
    // Bytes 10 to 15 of an ACPI table's header are the manufacturer.
    let mut header = [0_u8; 16];
    let file = File::open(root.path("sys/firmware/acpi/tables/FACP"));
    let read = file.and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && header[10..] == *b"FIRECK"
}

/// The CPU's hypervisor signature: twelve characters; `None` if there is none.
#[cfg(target_arch = "x86_64")]
pub fn hypervisor_signature() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    const HYPERVISOR_PRESENT: u32 = 1 << 31;
    const HYPERVISOR_LEAF: u32 = 0x4000_0000;
    if __cpuid(1).ecx & HYPERVISOR_PRESENT == 0 {
        return None;
    }
    let leaf = __cpuid(HYPERVISOR_LEAF);
    let letters = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
    Some(String::from_utf8_lossy(&letters).into_owned())
}

/// `None`: this architecture has no hypervisor signature.
#[cfg(not(target_arch = "x86_64"))]
pub fn hypervisor_signature() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_root::fixture::Fixture;

    fn read(files: &[(&str, &str)], signature: Option<&str>) -> String {
        Hardware::read(&Fixture::new(files).root(), signature)
            .map_or_else(|| "unknown".to_owned(), |it| format!("{} {it}", it.is_virtual()))
    }

    const VENDOR: &str = "sys/class/dmi/id/sys_vendor";
    const PRODUCT: &str = "sys/class/dmi/id/product_name";

    #[test]
    fn hypervisor_name_comes_from_the_most_specific_source() {
        assert_eq!(read(&[], Some("KVMKVMKVM\0\0\0")), "true KVM");
        let firecracker = ("sys/firmware/acpi/tables/FACP", "FACP....\u{6}.FIRECKFCVMFADT");
        assert_eq!(read(&[firecracker], Some("KVMKVMKVM\0\0\0")), "true Firecracker");
        let ec2 = [(VENDOR, "Amazon EC2\n"), (PRODUCT, "m7i.large\n")];
        assert_eq!(read(&ec2, None), "true KVM (Amazon EC2 m7i.large)");
        assert_eq!(read(&[("sys/hypervisor/type", "xen\n")], None), "true Xen");
        assert_eq!(
            read(&[("proc/cpuinfo", "flags : fpu hypervisor\n")], None),
            "true of unknown name"
        );
    }

    #[test]
    fn physical_and_unknown_machines_have_no_hypervisor() {
        let metal = [(VENDOR, "Amazon EC2\n"), (PRODUCT, "c7g.metal\n")];
        assert_eq!(read(&metal, None), "false none (Amazon EC2 c7g.metal)");
        assert_eq!(read(&[("proc/cpuinfo", "flags : fpu sse2\n")], None), "false none");
        assert_eq!(read(&[("proc/cpuinfo", "CPU part : 0xd40\n")], None), "unknown");
    }
}
