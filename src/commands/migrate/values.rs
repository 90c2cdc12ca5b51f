//! Values of the official controller's settings, as values of keys here.

use std::time::Duration;

use toml::Value;

use crate::config::{self, TimeSpan};

/// From a text that is not empty to the value of a key; the error is what is allowed, as the end of "must be ...".
pub(super) type Convert = fn(text: &str, key: &str) -> Result<ConvertedValue, &'static str>;

/// The value of a key.
#[derive(Debug, PartialEq)]
pub(super) struct ConvertedValue {
    pub(super) value: Value,
    /// Whether what was stated is out of the key's range, so that the nearest value stands for it.
    pub(super) limited: bool,
}

fn exact(value: impl Into<Value>) -> ConvertedValue {
    ConvertedValue { value: value.into(), limited: false }
}

pub(super) fn text(text: &str, _: &str) -> Result<ConvertedValue, &'static str> {
    Ok(exact(text))
}

/// The words that Go reads as a truth value.
pub(super) fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

pub(super) fn switch(text: &str, _: &str) -> Result<ConvertedValue, &'static str> {
    truth(text).map(exact).ok_or("true or false")
}

pub(super) fn opposite(text: &str, _: &str) -> Result<ConvertedValue, &'static str> {
    truth(text).map(|on| exact(!on)).ok_or("true or false")
}

pub(super) fn integer(text: &str, key: &str) -> Result<ConvertedValue, &'static str> {
    let given: i32 = text.parse().map_err(|_| "a whole number")?;
    let kept = config::nearest_number(key, f64::from(given));
    // Ranges of whole numbers end in whole numbers.
    #[allow(clippy::cast_possible_truncation)]
    let value = Value::Integer(kept as i64);
    Ok(ConvertedValue { limited: kept != f64::from(given), value })
}

pub(super) fn number(text: &str, key: &str) -> Result<ConvertedValue, &'static str> {
    let given: f64 = text.parse().ok().filter(|given: &f64| *given > 0.0).ok_or("a number above 0")?;
    let kept = config::nearest_number(key, given);
    Ok(ConvertedValue { limited: kept != given, value: kept.into() })
}

fn span(given: Duration, key: &str) -> ConvertedValue {
    let given = TimeSpan(given);
    let kept = config::nearest_time(key, given);
    ConvertedValue { limited: kept != given, value: kept.to_string().into() }
}

fn go_duration(text: &str) -> Result<Duration, &'static str> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    text.parse::<TimeSpan>().map(|given| given.0).map_err(|_| "a length of time such as 5m0s")
}

pub(super) fn duration(text: &str, key: &str) -> Result<ConvertedValue, &'static str> {
    go_duration(text).map(|given| span(given, key))
}

/// A period that the official controller raises to a minute.
pub(super) fn pace(text: &str, key: &str) -> Result<ConvertedValue, &'static str> {
    go_duration(text).map(|given| span(given.max(Duration::from_secs(60)), key))
}

/// Whole seconds; the official controller takes negative ones for none.
pub(super) fn seconds(text: &str, key: &str) -> Result<ConvertedValue, &'static str> {
    let given: i32 = text.parse().map_err(|_| "a whole number of seconds")?;
    Ok(span(Duration::from_secs(u64::try_from(given).unwrap_or_default()), key))
}

/// Seconds that a record may be remembered; the official controller takes 0 for its default.
pub(super) fn lifetime(text: &str, _: &str) -> Result<ConvertedValue, &'static str> {
    const DEFAULT: u32 = 60;
    let given: u32 = text.parse().map_err(|_| "a whole number of seconds")?;
    let meant = if given == 0 { DEFAULT } else { given };
    let kept = config::RECORD_TTLS.into_iter().min_by_key(|ttl| ttl.abs_diff(meant)).unwrap_or(DEFAULT);
    Ok(ConvertedValue { value: kept.into(), limited: kept != meant })
}

pub(super) fn list(text: &str, _: &str) -> Result<ConvertedValue, &'static str> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    Ok(exact(items.map(Value::from).collect::<Vec<_>>()))
}

/// `zone:vsw-...`; beside such pairs, the official controller skips parts of another form. Without a pair, it takes the text as
/// the id of one vSwitch.
pub(super) fn vswitches(text: &str, _: &str) -> Result<ConvertedValue, &'static str> {
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let pairs: Vec<&str> = parts.iter().copied().filter(|part| part.matches(':').count() == 1).collect();
    let kept = if pairs.is_empty() { &parts[..parts.len().min(1)] } else { &pairs };
    let value: Vec<_> = kept.iter().copied().map(Value::from).collect();
    Ok(ConvertedValue { limited: kept.len() < parts.len(), value: value.into() })
}

/// The official controller compares with `HTTP` alone.
pub(super) fn scheme(text: &str, _: &str) -> Result<ConvertedValue, &'static str> {
    Ok(exact(if text == "HTTP" { "http" } else { "https" }))
}

/// The official controller compares with `true` alone.
pub(super) fn forced_eni(text: &str, _: &str) -> Result<ConvertedValue, &'static str> {
    Ok(exact(text == "true"))
}

/// The verbosity of klog.
pub(super) fn level(text: &str, _: &str) -> Result<ConvertedValue, &'static str> {
    let verbosity: i32 = text.parse().map_err(|_| "a whole number")?;
    Ok(exact(if verbosity >= 4 { "debug" } else { "info" }))
}

pub(super) fn lock(text: &str, _: &str) -> Result<ConvertedValue, &'static str> {
    match text {
        "leases" | "configmapsleases" | "configmaps" => Ok(exact("leases")),
        "endpoints" | "endpointsleases" => Ok(exact("endpointsleases")),
        _ => Err("leases, endpoints, endpointsleases, configmaps or configmapsleases"),
    }
}

pub(super) fn backend_type(text: &str, _: &str) -> Result<ConvertedValue, &'static str> {
    match text {
        "eni" => Ok(exact(true)),
        "ecs" => Ok(exact(false)),
        _ => Err("eni or ecs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_mean_here_what_they_meant_there() {
        let shown = |convert: Convert, given: &str, key: &str| match convert(given, key) {
            Ok(ConvertedValue { value, limited }) => format!("{value}{}", if limited { " (limited)" } else { "" }),
            Err(allowed) => format!("must be {allowed}"),
        };
        for (convert, given, key, expected) in [
            (integer as Convert, "3", "service.concurrency", "3"),
            (integer, "500", "service.concurrency", "64 (limited)"),
            (integer, "0", "node.batch_size", "1 (limited)"),
            (integer, "many", "node.batch_size", "must be a whole number"),
            (number, "20", "kubernetes.qps", "20.0"),
            (number, "0", "kubernetes.qps", "must be a number above 0"),
            (duration, "2m17s", "leader_election.lease_duration", "\"2m17s\""),
            (duration, "5 parsecs", "leader_election.lease_duration", "must be a length of time such as 5m0s"),
            (pace, "10s", "route.period", "\"1m\""),
            (pace, "48h", "route.period", "\"24h\" (limited)"),
            (seconds, "-1", "node.aggregation", "\"0s\""),
            (switch, "T", "", "true"),
            (opposite, "true", "", "false"),
            (opposite, "on", "", "must be true or false"),
            (lifetime, "0", "pvtz.ttl", "60"),
            (lifetime, "30", "pvtz.ttl", "30"),
            (lifetime, "600", "pvtz.ttl", "60 (limited)"),
            (list, " a, b,", "", "[\"a\", \"b\"]"),
            (vswitches, "z:vsw-1,vsw-2", "", "[\"z:vsw-1\"] (limited)"),
            (vswitches, "vsw-1", "", "[\"vsw-1\"]"),
            (vswitches, "vsw-1,vsw-2", "", "[\"vsw-1\"] (limited)"),
            (scheme, "HTTP", "", "\"http\""),
            (scheme, "http", "", "\"https\""),
            (forced_eni, "true", "", "true"),
            (forced_eni, "1", "", "false"),
            (level, "2", "", "\"info\""),
            (level, "4", "", "\"debug\""),
            (lock, "endpoints", "", "\"endpointsleases\""),
            (backend_type, "eni", "", "true"),
        ] {
            assert_eq!(shown(convert, given, key), expected, "{given} for {key}");
        }
    }
}
