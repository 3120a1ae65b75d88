//! What the environment's texts mean, and sizes for people.

/// An environment variable of the device, `WAVE32_...`, with the name under which it is set: its own, or the older one
/// that begins with `WAVE_`. Its own wins. An empty value counts as unset.
pub fn variable(name: &str) -> Option<(String, String)> {
    lookup(name, |name| std::env::var(name).ok())
}

fn lookup(name: &str, read: impl Fn(&str) -> Option<String>) -> Option<(String, String)> {
    let names = [name.to_string(), name.replacen("WAVE32_", "WAVE_", 1)];
    names.into_iter().find_map(|name| {
        let value = read(&name).filter(|value| !value.trim().is_empty())?;
        Some((name, value))
    })
}

/// `512M`, `2.5G`, `1000`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim().trim_end_matches(['b', 'B']).trim_end_matches('i');
    let (number, unit) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 1u64 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let bytes = number.trim().parse::<f64>().ok()? * unit as f64;
    (bytes.is_finite() && bytes >= 0.0).then_some(bytes as u64)
}

/// `1.50 MiB`.
pub fn readable(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.2} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.2} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// The first device of a list of indices, `1` or `1,0`.
pub fn first_index(text: &str) -> Option<usize> {
    text.split(',').next().unwrap_or_default().trim().parse().ok()
}

/// Seconds to wait: some, and less than a million.
pub fn seconds(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds < 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;
    use rand::Rng;

    #[test]
    fn the_older_name_of_a_variable_is_read_where_its_own_is_not_set() {
        let seen = |set: &[(&str, &str)]| {
            let read =
                |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| value.to_string());
            lookup("WAVE32_TIMEOUT", read)
        };
        let found = |name: &str, value: &str| Some((name.to_string(), value.to_string()));
        assert_eq!(seen(&[("WAVE32_TIMEOUT", "5")]), found("WAVE32_TIMEOUT", "5"));
        assert_eq!(seen(&[("WAVE_TIMEOUT", "7")]), found("WAVE_TIMEOUT", "7"));
        assert_eq!(seen(&[("WAVE_TIMEOUT", "7"), ("WAVE32_TIMEOUT", "5")]), found("WAVE32_TIMEOUT", "5"));
        assert_eq!(seen(&[("WAVE_TIMEOUT", "7"), ("WAVE32_TIMEOUT", " ")]), found("WAVE_TIMEOUT", "7"));
        assert_eq!(seen(&[("TIMEOUT", "7"), ("WAVE_TIMEOUT", "")]), None);
    }

    #[test]
    fn a_number_of_bytes_may_have_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("1000", 1000),
            ("12b", 12),
            ("1k", 1024),
            ("1KiB", 1024),
            ("512M", 512 << 20),
            (" 512 MB ", 512 << 20),
            ("2.5G", 5 << 29),
            ("1e3", 1000),
            ("0.5", 0),
        ] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_of_bytes_is_none() {
        for text in ["", " ", "M", "-1", "-0.5G", "nan", "inf", "infG", "1T", "1,5G", "one", "µ"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn whole_units_are_read_exactly() {
        seeded(|random| {
            let (count, unit) = (random.random_range(0..1 << 20), random.random_range(0..4));
            let text = format!("{count}{}", ["", "K", "m", "GiB"][unit]);
            assert_eq!(parse_bytes(&text), Some(count << (10 * unit)), "{text}");
        });
    }

    /// What people read is within half of the last digit.
    #[test]
    fn sizes_for_people_are_read_back() {
        seeded(|random| {
            let bytes = random.random::<u64>() >> random.random_range(1..64);
            let text = readable(bytes);
            let (number, unit) = text.split_once(' ').unwrap();
            let unit = match unit {
                "bytes" => return assert_eq!(number.parse::<u64>().unwrap(), bytes),
                "KiB" => 1024.0,
                "MiB" => 1024.0 * 1024.0,
                "GiB" => 1024.0 * 1024.0 * 1024.0,
                other => panic!("{other}"),
            };
            let number: f64 = number.parse().unwrap();
            let error = (number - bytes as f64 / unit).abs();
            assert!(error <= 0.005 + number * 1e-12 && number >= 1.0, "{bytes}: {text}");
        });
    }

    #[test]
    fn the_first_of_a_list_of_devices_counts() {
        for (text, index) in [("0", Some(0)), (" 2 ", Some(2)), ("1,0", Some(1)), ("1, x", Some(1))] {
            assert_eq!(first_index(text), index, "{text}");
        }
        for text in ["", ",0", "-1", "gpu", "1.0"] {
            assert_eq!(first_index(text), None, "{text}");
        }
    }

    #[test]
    fn a_wait_has_an_end() {
        for (text, value) in [("5", Some(5.0)), (" 0.25", Some(0.25)), ("999999", Some(999_999.0))] {
            assert_eq!(seconds(text), value, "{text}");
        }
        for text in ["0", "-1", "inf", "nan", "1e6", "", "5s"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
