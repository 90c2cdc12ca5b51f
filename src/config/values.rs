//! Kinds of values that TOML does not have by itself: each is text in the file and a real type here.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use jiff::SignedDuration;
use jiff::fmt::friendly::{Spacing, SpanPrinter};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time, written with units: `15s`, `5m`, `1h30m`, `250ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(inline, extend("format" = "timespan", "pattern" = TIME_SPAN))]
pub struct TimeSpan(#[schemars(with = "String")] pub Duration);

/// A length of time, for editors: it refuses nothing that can be read as one.
const TIME_SPAN: &str = r"^[0-9]+(:[0-9]+:[0-9.,]+|[.,]?[0-9]*\s*(h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|ms|millis?|msecs?|milliseconds?|us|µs|μs|micros?|usecs?|µsecs?|μsecs?|microseconds?|ns|nanos?|nsecs?|nanoseconds?)[\s,]*[0-9:.,]*)+$";

/// More than this is taken for a mistake: timers would never fire again.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

impl FromStr for TimeSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a length of time; write a number and a unit, such as \"15s\" or \"1h30m\"");
        if !text.starts_with(|c: char| c.is_ascii_digit()) || text.ends_with("ago") {
            return Err(wrong());
        }
        let signed: SignedDuration = text.parse().map_err(|_| wrong())?;
        match Duration::try_from(signed) {
            Ok(length) if length <= LONGEST => Ok(Self(length)),
            _ => Err(format!("{} is too long; the longest is a year", shown(text))),
        }
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let printer = SpanPrinter::new().spacing(Spacing::None);
        f.write_str(&printer.unsigned_duration_to_string(&self.0))
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// How a key of type [`Duration`] is written, for `serde(with)`.
pub(super) mod time_span {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, TimeSpan};

    pub(crate) fn serialize<S: Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        TimeSpan(*length).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        TimeSpan::deserialize(deserializer).map(|span| span.0)
    }
}

/// The same for a period, of which `0s` stands for never.
pub(super) mod time_span_or_never {
    use super::{Deserializer, Duration, Serializer, time_span};

    pub(crate) fn serialize<S: Serializer>(period: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        time_span::serialize(&period.unwrap_or_default(), serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        time_span::deserialize(deserializer).map(|period| Some(period).filter(|period| !period.is_zero()))
    }
}

/// Reads a range of addresses, such as `10.0.0.0/16`; host bits must be zero.
pub(super) fn parse_cidr(text: &str) -> Result<IpNet, String> {
    let wrong = || format!("{} is not a CIDR; write an address and a length, such as \"10.0.0.0/16\"", shown(text));
    let net: IpNet = text.parse().map_err(|_| wrong())?;
    if net != net.trunc() {
        return Err(format!("{text:?} has host bits set; the range is written {:?}", net.trunc().to_string()));
    }
    Ok(net)
}

/// A value as it is quoted in a message: escaped, not endless, and without the password of a URL.
pub(super) fn shown(value: &str) -> String {
    let most = value.char_indices().nth(60).map_or(value.len(), |(at, _)| at);
    let most = most.min(password_in(value).unwrap_or(usize::MAX));
    let rest = if most < value.len() { "..." } else { "" };
    format!("{:?}{rest}", &value[..most])
}

/// Where a URL's user name and password begin, if it has them.
pub(super) fn password_in(text: &str) -> Option<usize> {
    let start = text.find("://")? + "://".len();
    text[start..].contains('@').then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_and_written_with_units() {
        for (text, millis, back) in [
            ("15s", 15_000, "15s"),
            ("5m", 300_000, "5m"),
            ("1h30m", 5_400_000, "1h30m"),
            ("1h 30m", 5_400_000, "1h30m"),
            ("250ms", 250, "250ms"),
            ("0s", 0, "0s"),
            ("90s", 90_000, "1m30s"),
        ] {
            let span: TimeSpan = text.parse().unwrap();
            assert_eq!((span.0.as_millis(), span.to_string().as_str()), (millis, back), "{text}");
            assert_eq!(back.parse::<TimeSpan>(), Ok(span));
        }
    }

    #[test]
    fn what_is_not_a_length_of_time_is_refused() {
        for text in ["", "15", "-5s", "5s ago", "+5s", "soon", "5 parsecs", "400d", "P1D", "99999999999999999999h"] {
            assert!(text.parse::<TimeSpan>().is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_with_host_bits_name_the_right_spelling() {
        assert_eq!(parse_cidr("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert!(parse_cidr("10.0.0.1/8").unwrap_err().contains("\"10.0.0.0/8\""));
        assert!(parse_cidr("10.0.0.0").is_err());
    }
}
