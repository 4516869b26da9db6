//! `dray install-files`: completions for shells and man pages, made from the command's definition.
//! `make install` calls it.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Command;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::common::Failure;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder for the files, such as /usr/local/share.
    folder: PathBuf,
}

/// Name of the command.
const NAME: &str = "dray";
/// Files with completions, below the folder, where the shells look for them.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/dray"),
    (Shell::Zsh, "zsh/site-functions/_dray"),
    (Shell::Fish, "fish/vendor_completions.d/dray.fish"),
];

/// Writes the files for `command`.
pub(crate) fn run(arguments: &Arguments, command: Command) -> Result<(), Failure> {
    let folder = &arguments.folder;
    // Subcommands as users see them: without those that programs call.
    let mut command = visible(command).disable_help_subcommand(true);
    let mut offered = offered(command.clone());
    command.build();
    for (shell, path) in COMPLETIONS {
        let mut text = Vec::new();
        generate(shell, &mut offered, NAME, &mut text);
        write(&folder.join(path), &text)?;
    }
    pages(&command, &folder.join("man/man1"))
}

/// Returns the command with the names of experiments and the like, which shells offer.
#[cfg(feature = "laboratory")]
fn offered(command: Command) -> Command {
    command.mut_subcommand("bench", crate::laboratory::with_names)
}

#[cfg(not(feature = "laboratory"))]
fn offered(command: Command) -> Command {
    command
}

/// Returns the command without hidden subcommands, at any depth. Subcommands cannot be removed from
/// a `clap::Command`, so a command with hidden ones is built again without them.
fn visible(command: Command) -> Command {
    let command = command.mut_subcommands(visible);
    let (hidden, shown): (Vec<_>, Vec<_>) =
        command.get_subcommands().cloned().partition(Command::is_hide_set);
    if hidden.is_empty() {
        return command;
    }
    // clap wants a name that lives as long as the program, which ends soon.
    let name: &'static str = command.get_name().to_owned().leak();
    Command::new(name)
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .about(command.get_about().cloned().unwrap_or_default())
        .after_help(command.get_after_help().cloned().unwrap_or_default())
        .args(command.get_arguments().cloned())
        .subcommands(shown)
}

/// Writes a page for the command, and one for each of its subcommands.
fn pages(command: &Command, folder: &Path) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = folder.join(format!("{name}.1"));
    let page = page(command).with_context(|| path.display().to_string())?;
    write(&path, &page)?;
    command.get_subcommands().try_for_each(|subcommand| pages(subcommand, folder))
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone()).source(concat!("dray ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    page.extend(sections(&after).into_bytes());
    Ok(page)
}

/// Formats the text below a command's options: each paragraph that begins with a title
/// (`Examples:`) becomes a section.
fn sections(text: &str) -> String {
    let mut page = String::new();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let (title, body) = paragraph.split_once(':').unwrap_or(("Notes", paragraph));
        let title = match title {
            "Example" => "EXAMPLES".to_owned(),
            title => title.to_uppercase(),
        };
        let _ = writeln!(page, ".SH \"{title}\"\n.nf");
        let body = body.strip_prefix([' ', '\n']).unwrap_or(body);
        for line in body.lines() {
            let _ = writeln!(page, "{}", escaped(line));
        }
        page.push_str(".fi\n");
    }
    page
}

/// Returns a line that roff prints as it is.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

fn write(path: &Path, text: &[u8]) -> Result<(), Failure> {
    let write = || {
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        fs::write(path, text)
    };
    Ok(write().with_context(|| path.display().to_string())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_become_sections() {
        let page = sections("Examples:\n  dray -x\n  .y \\\n\nExit status: 0 done; 1 failed.");
        assert_eq!(
            page,
            ".SH \"EXAMPLES\"\n.nf\n  dray \\-x\n  .y \\e\n.fi\n\
             .SH \"EXIT STATUS\"\n.nf\n0 done; 1 failed.\n.fi\n"
        );
        assert_eq!(escaped(".dot"), "\\&.dot");
    }
}
