import click


@click.group()
def cli():
    """Train or look."""


@cli.command()
@click.option("--epochs", default=2, show_default=True)
@click.option("--log-dir", default="runs")
def fit(epochs, log_dir):
    """Train."""
    for epoch in range(1, epochs + 1):
        print(f"Epoch {epoch}/{epochs}")
    print("logged in", log_dir)


@cli.command()
@click.option("--data_dir", required=True)
def look(data_dir):
    """Look at data."""
    print(data_dir)


if __name__ == "__main__":
    cli()
