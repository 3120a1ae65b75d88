//! The names of MIOpen's solvers, which its C interface gives as numbers.

use wave32_problem::Direction;

const TABLE: &str = include_str!("solvers.txt");

/// One solver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Solver {
    /// Its number (`solution_id`).
    pub id: u64,
    /// Its name, as `MIOPEN_DEBUG_FIND_ONLY_SOLVER` takes it.
    pub name: &'static str,
    /// `direct`, `gemm`, `winograd`, `fft` or `implicit-gemm`.
    pub algorithm: &'static str,
    passes: &'static str,
    matrix_cores: bool,
}

impl Solver {
    /// True where it may take this pass.
    pub fn serves(&self, direction: Direction) -> bool {
        self.passes.split(',').any(|pass| pass == direction.name())
    }
}

/// All solvers there are.
pub fn all() -> impl Iterator<Item = Solver> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(Solver {
            id: words.next()?.parse().ok()?,
            name: words.next()?,
            algorithm: words.next()?,
            passes: words.next()?,
            matrix_cores: words.next() == Some("matrix-cores"),
        })
    })
}

/// Those worth asking for by name for a pass on a card of this target: instructions of CDNA's matrix cores are on no
/// other card.
pub fn worth_asking(direction: Direction, target: &str) -> Vec<Solver> {
    let cdna = target.starts_with("gfx9");
    all().filter(|s| s.serves(direction) && (cdna || !s.matrix_cores)).collect()
}

/// A solver's name for its number; the number where it is not known.
pub fn name(id: u64) -> String {
    all().find(|s| s.id == id).map_or_else(|| format!("solver-{id}"), |s| s.name.to_string())
}

/// The name of a `miopenConvAlgorithm_t`.
pub fn algorithm(number: i32) -> &'static str {
    match number {
        0 => "gemm",
        1 => "direct",
        2 => "fft",
        3 => "winograd",
        5 => "implicit-gemm",
        _ => "unknown",
    }
}

/// The variables that shut out every solver but one in Find: the filter by name does not hold for GEMM and FFT in
/// MIOpen up to 3.2, so all other algorithms are switched off as well.
pub fn only(solver: &Solver) -> Vec<(String, Option<String>)> {
    const SWITCHES: [(&str, &str); 5] = [
        ("gemm", "MIOPEN_DEBUG_CONV_GEMM"),
        ("direct", "MIOPEN_DEBUG_CONV_DIRECT"),
        ("fft", "MIOPEN_DEBUG_CONV_FFT"),
        ("winograd", "MIOPEN_DEBUG_CONV_WINOGRAD"),
        ("implicit-gemm", "MIOPEN_DEBUG_CONV_IMPLICIT_GEMM"),
    ];
    let mut variables = vec![("MIOPEN_DEBUG_FIND_ONLY_SOLVER".to_string(), Some(solver.name.to_string()))];
    variables.extend(SWITCHES.map(|(algorithm, variable)| {
        let value = if algorithm == solver.algorithm { "1" } else { "0" };
        (variable.to_string(), Some(value.to_string()))
    }));
    // Find must run it (1: the full Find, whatever the user's mode) and not search for a better configuration.
    variables.extend([
        ("MIOPEN_FIND_MODE".to_string(), Some("1".to_string())),
        ("MIOPEN_FIND_ENFORCE".to_string(), Some("1".to_string())),
    ]);
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_table_is_whole() {
        let lines = TABLE.lines().filter(|l| !l.starts_with('#')).count();
        assert_eq!(all().count(), lines);
        let (ids, names): (HashSet<_>, HashSet<_>) = all().map(|s| (s.id, s.name)).unzip();
        assert_eq!((ids.len(), names.len()), (lines, lines));
        assert!(all().all(|s| Direction::ALL.into_iter().any(|d| s.serves(d))));
    }

    #[test]
    fn known_numbers() {
        assert_eq!(name(85), "ConvDirectNaiveConvFwd");
        assert_eq!(name(91), "GemmFwdRest");
        assert_eq!(name(37), "ConvBinWinogradRxSf3x2");
        assert_eq!(name(9999), "solver-9999");
        let asked = worth_asking(Direction::Forward, "gfx1010");
        assert!(asked.iter().all(|s| !s.name.contains("Xdlops")) && asked.len() > 15);
    }
}
