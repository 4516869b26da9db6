//! Mean and deviation.

/// Arithmetic mean; zero if there are no values.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Standard deviation of a sample (the divisor is `n - 1`); zero for fewer than two values.
pub fn standard_deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Standard error of the mean; `None` for fewer than two values.
pub fn standard_error(values: &[f64]) -> Option<f64> {
    (values.len() >= 2).then(|| standard_deviation(values) / (values.len() as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_known_values() {
        assert_eq!(mean(&[]), 0.0);
        assert_eq!(mean(&[2.0, 4.0, 9.0]), 5.0);
        assert_eq!(standard_deviation(&[3.0]), 0.0);
        // Sum of squared distances 32 over n - 1 = 7.
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert!((standard_deviation(&values) - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        let error = standard_error(&values).unwrap();
        assert!((error - (32.0f64 / 7.0 / 8.0).sqrt()).abs() < 1e-12);
        assert_eq!(standard_error(&[3.0]), None);
    }
}
