use serde::{Deserialize, Serialize};

/// The place of a candidate in a matrix of settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixCell {
    /// The matrix: the name of the `[[candidate]]` that all its candidates come from.
    pub matrix: String,
    /// The value of each setting of the matrix, in the order of the matrix.
    pub levels: Vec<MatrixLevel>,
}

/// A value of a setting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MatrixLevel {
    pub setting: String,
    pub value: String,
}
