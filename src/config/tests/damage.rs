use std::time::Duration;

use proptest::prelude::*;

use super::super::*;
use super::*;

/// A place within the text, or none.
fn is_within(problem: &ConfigProblem, text: &str) -> bool {
    match problem.place {
        ProblemPlace::File { line, column, .. } => {
            let lines: Vec<&str> = text.split('\n').collect();
            (1..=lines.len()).contains(&line) && (1..=lines[line - 1].chars().count() + 1).contains(&column)
        }
        ProblemPlace::Whole { .. } => true,
        ProblemPlace::Variable { .. } | ProblemPlace::Argument { .. } => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn any_damage_to_the_file_is_explained(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..40usize, ".{0,6}|[\\[\\]{}=\"'#.,\n0-9a-z]{0,8}"), 1..6),
        uncomment in any::<bool>(),
    ) {
        let mut text = reference(&CATALOG).unwrap();
        if uncomment {
            text = text.replace("\n#", "\n").replace("\n ", "\n# ");
        }
        for (at, length, new) in edits {
            let chars: Vec<char> = text.chars().collect();
            let start = at.index(chars.len());
            let end = (start + length).min(chars.len());
            text = chars[..start].iter().copied().chain(new.chars()).chain(chars[end..].iter().copied()).collect();
        }
        if let Err(report) = check(&source(&text), &CATALOG) {
            prop_assert!(!report.problems().is_empty());
            prop_assert!(!report.to_string().is_empty());
            for problem in report.problems() {
                prop_assert!(is_within(problem, &text), "{problem:?}");
            }
        }
    }

    #[test]
    fn any_text_is_survived(text in ".{0,200}", name in "[A-Z_]{0,20}", value in ".{0,20}", argument in ".{0,30}") {
        let mut source = with_environment(&text, &[(&format!("ALICLOUD_CCM__{name}"), &value)]);
        source.overrides = vec![argument];
        if let Err(report) = check(&source, &CATALOG) {
            prop_assert!(!report.to_string().is_empty());
        }
    }

    #[test]
    fn lengths_of_time_come_back(millis in 0u64..30_000_000_000) {
        let span = TimeSpan(Duration::from_millis(millis));
        prop_assert_eq!(span.to_string().parse::<TimeSpan>(), Ok(span));
    }
}

#[test]
fn nesting_without_end_is_survived() {
    let deep = [
        format!("x = {}", "[".repeat(100_000)),
        format!("x = {}", "{a=".repeat(100_000)),
        format!("x = {}1{}", "[".repeat(100_000), "]".repeat(100_000)),
        format!("{}x = 1", "a.".repeat(100_000)),
        format!("[{}x]", "a.".repeat(100_000)),
    ];
    for text in deep {
        assert!(!bad(&source(&text)).to_string().is_empty());
    }
    let name = format!("ALICLOUD_CCM__{}X", "A__".repeat(100_000));
    bad(&with_environment(&right(""), &[(&name, "1")]));
    bad(&with_overrides(&right(""), &[&format!("{}x=1", "a.".repeat(100_000))]));
    bad(&with_overrides(&right(""), &[&format!("controllers={}", "[".repeat(100_000))]));
}
