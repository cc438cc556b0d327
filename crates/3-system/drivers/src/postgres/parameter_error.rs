/// Values that do not match a statement's parameters. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParameterError {
    #[error("the statement has {parameters} parameters, but {values} values were given")]
    Count { parameters: usize, values: usize },
    #[error("parameter {position} is of type {parameter_type}; {value} does not fit")]
    Int { position: usize, parameter_type: &'static str, value: i64 },
    #[error("parameter {position} is of type {parameter_type}; a text of {len} bytes does not fit")]
    Text { position: usize, parameter_type: &'static str, len: u32 },
    #[error("there is no parameter ${0}")]
    Unknown(usize),
    #[error("PostgreSQL cannot store a text with a zero byte")]
    ZeroByte,
}

impl ParameterError {
    #[cold]
    pub(super) fn wrong_count(parameters: usize, values: usize) -> Self {
        Self::Count { parameters, values }
    }
}
