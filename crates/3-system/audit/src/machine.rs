/// An architecture, as far as compilers' defaults depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Machine {
    /// x86-64.
    X86,
    /// 64-bit Arm.
    Arm,
    /// Any other.
    #[default]
    Other,
}

impl Machine {
    pub(crate) fn of(file: &object::File<'_>) -> Self {
        match object::Object::architecture(file) {
            object::Architecture::X86_64 => Self::X86,
            object::Architecture::Aarch64 => Self::Arm,
            _ => Self::Other,
        }
    }

    /// The compilers' default instruction set.
    pub(crate) fn baseline(self) -> Option<String> {
        match self {
            Self::X86 => Some("x86-64".to_owned()),
            Self::Arm => Some("armv8-a".to_owned()),
            Self::Other => None,
        }
    }
}
