//! Medians and how often to repeat.

use std::time::Duration;

/// The middle of the values, of an even number the mean of the two in the middle; `None` of none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

/// exp of the mean logarithm of the positive values; `None` of none.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let logs: Vec<f64> = values.into_iter().filter(|v| *v > 0.0 && v.is_finite()).map(f64::ln).collect();
    if logs.is_empty() { None } else { Some((logs.iter().sum::<f64>() / logs.len() as f64).exp()) }
}

/// As many runs of `once` as fill `target`, within the bounds.
pub fn repeats(once: Duration, target: Duration, least: u32, most: u32) -> u32 {
    let fill = target.as_secs_f64() / once.as_secs_f64().max(1e-9);
    (fill.min(f64::from(most)) as u32).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_means_by_hand() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
        assert_eq!(geometric_mean([]), None);
        assert!((geometric_mean([2.0, 8.0]).unwrap() - 4.0).abs() < 1e-12);
        assert_eq!(geometric_mean([f64::NAN, 0.0]), None);
    }

    #[test]
    fn repeats_fill_the_target_within_bounds() {
        let target = Duration::from_millis(200);
        assert_eq!(repeats(Duration::from_millis(2), target, 5, 1000), 100);
        assert_eq!(repeats(Duration::from_secs(9), target, 5, 1000), 5);
        assert_eq!(repeats(Duration::ZERO, target, 5, 1000), 1000);
    }
}
