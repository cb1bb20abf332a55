"""Training: glue for `transformers.Trainer`, the NaN finder, and what all trainings share."""
