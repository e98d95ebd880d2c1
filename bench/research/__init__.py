"""What methods reach: accuracy, forecasts and bytes of real streams, through HTTP or in a study."""
