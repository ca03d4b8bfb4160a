"""On what trials learn: tables in, numpy arrays out. The only owner of pandas and scikit-learn."""
