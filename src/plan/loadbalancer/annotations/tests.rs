use super::values::{ValueKind, ZeroMeans};
use super::{AnnotationName, Annotations, Applies, Entry, PREFIX, parse};
use crate::plan::inputs::ServiceView;
use crate::plan::{clb, nlb};

const ON: [&str; 4] = ["on", "On", "ON", " on "];
const OFF: [&str; 4] = ["off", "Off", "OFF", "\toff"];

fn read<N: AnnotationName>(name: N, value: &str) -> Annotations<N> {
    let annotations = [(name.key(), value.to_owned())].into_iter().collect();
    parse(&ServiceView { annotations, ..ServiceView::default() })
}

/// Whether anything is said about the value.
fn is_told<N: AnnotationName>(found: &Annotations<N>) -> bool {
    !found.problems.is_empty() || !found.warnings.is_empty()
}

/// A value that is right, where lists have two items.
fn sample(kind: ValueKind) -> String {
    match kind {
        ValueKind::AnyValue | ValueKind::Text | ValueKind::Presence | ValueKind::Cookie => "one".to_owned(),
        ValueKind::LoadBalancerName { .. } => "shop".to_owned(),
        ValueKind::Address => "192.168.0.9".to_owned(),
        ValueKind::HostName | ValueKind::HealthDomain(_) => "shop.example.com".to_owned(),
        ValueKind::HealthPath => "/health".to_owned(),
        ValueKind::Switch(_) | ValueKind::LooseSwitch(_) => "on".to_owned(),
        ValueKind::OneOf(values)
        | ValueKind::OneOfOrLast(values)
        | ValueKind::OneOfGrowing(values)
        | ValueKind::AnyCase(values) => values[0].to_owned(),
        ValueKind::Integer { max, .. } => max.to_string(),
        ValueKind::Ids { most: 1, .. } => "id-1".to_owned(),
        ValueKind::AclIds | ValueKind::Ids { .. } => "id-1,id-2".to_owned(),
        ValueKind::HttpCodes => "http_2xx,http_3xx".to_owned(),
        ValueKind::Tags | ValueKind::Labels => "a=1,b=2".to_owned(),
        ValueKind::ZoneMaps => "z-1:vsw-1,z-2:vsw-2".to_owned(),
        ValueKind::ProtocolPorts(known) | ValueKind::AnyCaseProtocolPorts(known) => format!("{0}:80,{0}:81", known[0]),
        ValueKind::PortRanges => "80-400:80,500-600:500".to_owned(),
        ValueKind::ForwardPorts => "80:443,81:443".to_owned(),
        ValueKind::ServerGroupPorts => "rsp-1:80,rsp-2:81".to_owned(),
        ValueKind::DomainExtensions => "a.example.com:c-1,b.example.com:c-2".to_owned(),
    }
}

fn each_row(check_clb: impl Fn(&Entry<clb::annotations::Name>), check_nlb: impl Fn(&Entry<nlb::annotations::Name>)) {
    clb::annotations::Name::TABLE.iter().for_each(check_clb);
    nlb::annotations::Name::TABLE.iter().for_each(check_nlb);
}

fn has_source<N: AnnotationName>(entry: &Entry<N>) {
    let is_free = matches!(entry.kind, ValueKind::AnyValue | ValueKind::Text | ValueKind::Presence);
    let has_one = !entry.source.is_empty() || matches!(entry.applies, Applies::Field(_));
    assert!(is_free || has_one, "{}: where are the allowed values defined?", entry.key.full());
}

#[test]
fn each_check_of_a_value_has_its_source() {
    each_row(has_source, has_source);
}

fn switch_words<N: AnnotationName>(entry: &Entry<N>) {
    let key = entry.key.full();
    let spellings = match entry.kind {
        ValueKind::Switch(spellings) => spellings,
        ValueKind::LooseSwitch(_) => ["true", "false"],
        _ => return,
    };
    for (words, spelling) in [(ON, spellings[0]), (OFF, spellings[1])] {
        for word in words {
            let found = read(entry.name, word);
            assert_eq!((found.get(entry.name), is_told(&found)), (Some(spelling), false), "{key}: {word:?}");
        }
    }
    assert!(is_told(&read(entry.name, "yes")), "{key}: yes");
    let is_on = read(entry.name, "true").get(entry.name) == Some("true");
    assert!(is_told(&read(entry.name, "true")) != is_on, "{key}: either `true` counts, or a warning names it");
    assert!(!is_told(&read(entry.name, "")), "{key}: an empty value is not set");
}

#[test]
fn every_switch_takes_on_and_off_in_the_same_spellings() {
    each_row(switch_words, switch_words);
}

fn words_are_not_ignored<N: AnnotationName>(entry: &Entry<N>) {
    for word in ["on", "off", "true", "false", "On", " on ", "yes"] {
        let found = read(entry.name, word);
        assert!(found.is_stated(entry.name) || is_told(&found), "{}: {word:?}", entry.key.full());
    }
}

#[test]
fn no_value_of_an_annotation_is_ignored_without_a_word() {
    each_row(words_are_not_ignored, words_are_not_ignored);
}

fn blanks_do_not_count<N: AnnotationName>(entry: &Entry<N>) {
    let (right, key) = (sample(entry.kind), entry.key.full());
    let plain = read(entry.name, &right);
    assert!(plain.is_stated(entry.name) && !is_told(&plain), "{key}: {right}: {plain:?}");
    for blank in [format!(" {right}"), format!("{right}\n"), right.replace(',', " , ")] {
        let found = read(entry.name, &blank);
        assert_eq!((&found.values, is_told(&found)), (&plain.values, false), "{key}: {blank:?}");
    }
}

#[test]
fn blanks_around_a_value_and_around_the_items_of_a_list_do_not_count() {
    each_row(blanks_do_not_count, blanks_do_not_count);
}

fn other_separators_are_told<N: AnnotationName>(entry: &Entry<N>) {
    let right = sample(entry.kind);
    for separator in [";", "\u{ff1b}", "\u{ff0c}", "\u{3001}"] {
        let wrong = right.replace(',', separator);
        assert!(wrong == right || is_told(&read(entry.name, &wrong)), "{}: {wrong}", entry.key.full());
    }
}

#[test]
fn a_list_with_other_separators_than_commas_is_told() {
    each_row(other_separators_are_told, other_separators_are_told);
}

fn repeated_keys_are_told<N: AnnotationName>(entry: &Entry<N>) {
    let (right, key) = (sample(entry.kind), entry.key.full());
    let found = read(entry.name, &format!("{right},{right}"));
    let once = read(entry.name, &right);
    // Of a set, each counts once.
    let is_set = matches!(entry.kind, ValueKind::AclIds | ValueKind::Ids { .. } | ValueKind::HttpCodes);
    if right.contains(',') {
        assert!(if is_set { found.values == once.values } else { is_told(&found) }, "{key}: {found:?}");
    }
}

#[test]
fn items_of_a_list_with_the_same_key_are_told() {
    each_row(repeated_keys_are_told, repeated_keys_are_told);
}

#[test]
fn what_is_cut_off_a_tag_or_a_label_is_told() {
    for cut in ["a=b=c", "k1:v1", "=v", "a=1,a=2"] {
        let found = read(clb::annotations::Name::AdditionalResourceTags, cut);
        assert_eq!((found.problems.len(), found.warnings.len()), (0, 1), "{cut}: {found:?}");
    }
    assert!(is_told(&read(clb::annotations::Name::BackendLabel, "a=b=c")));
}

fn zero_is_told<N: AnnotationName>(entry: &Entry<N>) {
    if matches!(entry.kind, ValueKind::Integer { zero: ZeroMeans::Unset | ZeroMeans::BackendPort, .. }) {
        assert!(is_told(&read(entry.name, "0")), "{}", entry.key.full());
    }
}

#[test]
fn a_zero_that_counts_as_not_set_is_told() {
    each_row(zero_is_told, zero_is_told);
}

#[test]
fn a_name_in_chinese_is_left_to_the_cloud_with_a_word() {
    let found = read(clb::annotations::Name::LbName, "\u{5546}\u{5e97}-1");
    assert_eq!((found.problems.len(), found.get(clb::annotations::Name::LbName)), (0, Some("\u{5546}\u{5e97}-1")));
    assert!(found.warnings[0].to_string().ends_with("; the cloud decides"), "{:?}", found.warnings);
    let key = |suffix: &str| format!("{PREFIX}{suffix}");
    assert_eq!(found.warnings[0].field, key("name"));
}
