//! A report as aligned tables.

use quire_core::{
    admission::{Budget, Limit},
    plan::{
        ID_CHARACTERS, ID_CHARACTERS_COMPARED, Plan, ROW_BYTES,
        advice::Advice,
        ids_of,
        ratio::Ratio,
        show::{byte_ratio, bytes, count, seconds},
    },
};

use super::{Report, TIMES};

/// Between two columns.
const GAP: &str = "   ";
/// In a cell that has nothing to say.
const NOTHING: &str = "-";

/// The report, without a line break at its end.
pub(super) fn of(report: &Report) -> String {
    let mut parts = vec![sizes(report), collisions(report), budgets(report), worst_cases(report)];
    parts.push(list("What the budgets do not stop", &report.not_stopped));
    if !report.warnings.is_empty() {
        parts.push(list("Warnings", &report.warnings));
    }
    parts.join("\n\n")
}

/// A cell for the plan, and one for the larger plan where that can be counted.
fn both(report: &Report, name: String, show: impl Fn(&Plan) -> String) -> Vec<String> {
    let larger = report.larger.as_ref().map_or(NOTHING.to_owned(), &show);
    vec![name, show(&report.plan), larger]
}

fn heads(title: &str) -> Vec<String> {
    vec![title.to_owned(), "the plan".to_owned(), format!("{TIMES}x the plan")]
}

fn sizes(report: &Report) -> String {
    let a_second = |creates: Ratio| format!("{}/s", creates.show(4));
    let bytes_a_second = |bytes: Ratio| format!("{}/s", byte_ratio(bytes));
    let of_plan = |name: &str, show: &dyn Fn(&Plan) -> String| both(report, name.to_owned(), show);
    let rows = [
        heads("Plan"),
        of_plan("new pastes a day", &|plan| count(plan.creates_per_day().into())),
        of_plan("mean body", &|plan| bytes(plan.mean_body_bytes().into())),
        of_plan("mean life", &|plan| seconds(plan.retention().as_secs().into())),
        of_plan("creates, on average", &|plan| a_second(plan.creates_per_s())),
        of_plan("creates, at peak (3x)", &|plan| a_second(plan.peak_creates_per_s())),
        of_plan("bodies a day", &|plan| bytes(plan.bytes_per_day())),
        of_plan("bodies, on average", &|plan| bytes_a_second(plan.bytes_per_s())),
        of_plan("bodies, at peak (3x)", &|plan| bytes_a_second(plan.peak_bytes_per_s())),
        of_plan("live pastes", &|plan| count(plan.live_pastes())),
        of_plan("live bodies", &|plan| bytes(plan.live_body_bytes())),
        of_plan(&format!("live rows, {ROW_BYTES} bytes each"), &|plan| bytes(plan.live_row_bytes())),
        of_plan("ids minted in ten years", &|plan| Ratio::whole(plan.ids_in_ten_years()).show(3)),
    ];
    table(&rows)
}

fn collisions(report: &Report) -> String {
    let mut rows = vec![heads("Id collisions in ten years, n^2/(2*62^k)")];
    for characters in ID_CHARACTERS_COMPARED {
        let used = if characters == ID_CHARACTERS { " (used)" } else { "" };
        let name = format!("{characters} characters{used}: {} ids", Ratio::whole(ids_of(characters)).show(3));
        rows.push(both(report, name, |plan| plan.id_collisions(characters).show(3)));
    }
    table(&rows)
}

/// The six budgets by their names, in the order of the contract's table.
pub(super) fn budgets_by_name(report: &Report) -> [(Limit, Option<Budget>); 6] {
    let budgets = &report.budgets;
    [
        (Limit::SourceCreates, budgets.creates.source.creates),
        (Limit::SourceBytes, budgets.creates.source.bytes),
        (Limit::ServiceCreates, budgets.creates.service.creates),
        (Limit::ServiceBytes, budgets.creates.service.bytes),
        (Limit::SourceReads, budgets.source_reads),
        (Limit::SourceDeletes, budgets.source_deletes),
    ]
}

fn budgets(report: &Report) -> String {
    let mut rows = vec![["Budgets", "rate", "burst"].map(str::to_owned).to_vec()];
    for (limit, budget) in budgets_by_name(report) {
        let amount = |number: u64| match limit {
            Limit::SourceBytes | Limit::ServiceBytes => bytes(number.into()),
            _ => count(number.into()),
        };
        let off = || "off".to_owned();
        rows.push(vec![
            limit.as_str().to_owned(),
            budget.map_or_else(off, |budget| format!("{}/s", amount(budget.rate_per_s()))),
            budget.map_or_else(off, |budget| amount(budget.burst())),
        ]);
    }
    table(&rows)
}

fn worst_cases(report: &Report) -> String {
    let mut head = ["Worst case under attack", "bodies a day", "if only counts", "fills the plan in"]
        .map(str::to_owned)
        .to_vec();
    if let Some(free) = report.free_disk_bytes {
        head.push(format!("fills {} in", bytes(free.into())));
    }
    let mut rows = vec![head];
    for case in &report.worst_cases {
        let flood = &case.worst.flood;
        let a_day = |bound: Option<u128>| bound.map_or("no bound".to_owned(), bytes);
        let fills =
            |amount: u128| flood.disk_bytes().seconds_to(amount).map_or("no bound".to_owned(), seconds);
        let mut row = vec![
            case.name.clone(),
            a_day(flood.body_bytes.in_a_day()),
            a_day(case.worst.body_bytes_if_counts_only.in_a_day()),
            fills(report.plan.capacity_bytes()),
        ];
        row.extend(report.free_disk_bytes.map(|free| fills(free.into())));
        rows.push(row);
    }
    let capacity = bytes(report.plan.capacity_bytes());
    format!(
        "{}\n  The plan's capacity is {capacity}: live bodies and rows. A fill counts rows too.",
        table(&rows)
    )
}

/// Rows under each other, the first column to the left and the others to the right. The first row is the head.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let lengths = rows
            .iter()
            .enumerate()
            .filter_map(|(row, cells)| cells.get(column).map(|cell| cell.len() + indent(row, column).len()));
        lengths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |(row, cells): (usize, &Vec<String>)| {
        let cells = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let cell = format!("{}{cell}", indent(row, column));
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join(GAP)
    };
    rows.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// What stands below its head is set in.
const fn indent(row: usize, column: usize) -> &'static str {
    if row > 0 && column == 0 { "  " } else { "" }
}

fn list(title: &str, advice: &[Advice]) -> String {
    let width = advice.iter().map(|advice| advice.about().len()).max().unwrap_or(0);
    let lines = advice.iter().map(|advice| format!("\n  {:<width$}{GAP}{}", advice.about(), advice.text));
    format!("{title}{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_set_in() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let shown = table(&[row(["Head", "a", "bbbb"]), row(["x", "12", "3"]), row(["long name", "1", "4"])]);
        assert_eq!(
            shown,
            "Head           a   bbbb\n  \
               x           12      3\n  \
               long name    1      4"
        );
    }
}
