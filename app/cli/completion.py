"""`xcecli completion`: what a shell needs to complete our commands."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete commands and options.

    For bash: eval "$(xcecli completion bash)" in ~/.bashrc; for zsh the same in ~/.zshrc; for fish:
    xcecli completion fish > ~/.config/fish/completions/xcecli.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells"
    root = ctx.find_root().command
    click.echo(kind(root, {}, "xcecli", "_XCECLI_COMPLETE").source())
