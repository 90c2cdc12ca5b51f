//! The time that each scenario takes.
//!
//! ```console
//! cargo bench -p benches --bench micro
//! ```

use benches::SCENARIOS;
use criterion::{Criterion, criterion_group, criterion_main};

fn scenarios(criterion: &mut Criterion) {
    for scenario in SCENARIOS {
        let mut work = (scenario.prepare)();
        criterion.bench_function(scenario.name, |bencher| bencher.iter(&mut work));
    }
}

criterion_group!(benches, scenarios);
criterion_main!(benches);
